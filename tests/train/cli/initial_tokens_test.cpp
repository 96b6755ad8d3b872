// Tests of the tokenizer and the phones of runs that start from model.init.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/data/text/piece_model.h"
#include "tests/support/message_log.h"
#include "tests/train/cli/text_run.h"
#include "tests/train/cli/translation_run.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/metrics.h"
#include "train/tasks/text/description.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

nlohmann::json tokens_of(const std::filesystem::path& run) {
  return nlohmann::json::parse(read_checkpoint_contents(run).state.task_json);
}

template <class Error>
std::string training_error(const Config& config, const std::filesystem::path& run) {
  try {
    train(config, run);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool has_part(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kRemedy = "model.init_tokens = \"new\"";

// Returns a config that starts from the run and repeats its weights.
Config make_tuning(Config config, const std::filesystem::path& init) {
  config.model.init = init.string();
  config.optimizer.lr = 0;
  return config;
}

// A language model of a text, whose words in `path` other texts replace.
struct TextFiles : TextRun {
  explicit TextFiles(const std::string& tokenizer) : TextRun("linear", tokenizer) {}
  Config tune_on(const std::string& line) const {
    std::string text;
    for (int i = 0; i < 300; ++i) text += line + "\n";
    write_file(dir / "other.txt", text);
    Config tuning = make_tuning(config, dir / "run");
    tuning.data.options.set("path", (dir / "other.txt").string());
    return tuning;
  }
};

}  // namespace

TEST_CASE("a run with model.init has the characters of the weights, also after a resume") {
  const TextFiles run("characters");
  Config config = run.tune_on("a cat ran");  // has fewer characters
  train(config, run.dir / "tuned");
  CHECK(tokens_of(run.dir / "tuned") == tokens_of(run.dir / "run"));
  CHECK(read_checkpoint_contents(run.dir / "tuned").model_tensors.at("predictor.bias").to_vector() ==
        read_checkpoint_contents(run.dir / "run").model_tensors.at("predictor.bias").to_vector());
  config.train.steps = 5;
  std::filesystem::rename(run.dir / "run", run.dir / "moved");  // a resumed run does not read model.init
  CHECK(train(config, run.dir / "tuned", true).step == 5);
  CHECK(tokens_of(run.dir / "tuned") == tokens_of(run.dir / "moved"));
}

TEST_CASE(
    "characters that model.init lacks are an error with a remedy: new tokens, whose parameters start anew") {
  const TextFiles run("characters");
  Config config = run.tune_on("a fox ran");
  const std::string error = training_error<DataError>(config, run.dir / "tuned");
  CHECK_MESSAGE(has_part(error, "data.path: " + (run.dir / "other.txt").string() + ":1 (byte 3)"), error);
  CHECK_MESSAGE(has_part(error, kRemedy), error);

  config.model.init_tokens = "new";
  const MessageLog log;
  train(config, run.dir / "tuned");
  CHECK(tokens_of(run.dir / "tuned") != tokens_of(run.dir / "run"));
  CHECK_MESSAGE(
      has_part(log.text(), ", 3 new (value_embedding.weight, predictor.weight, predictor.bias), 3 unused ("),
      log.text());
  const auto tuned = read_checkpoint_contents(run.dir / "tuned").model_tensors,
             first = read_checkpoint_contents(run.dir / "run").model_tensors;
  CHECK(tuned.at("layers.0.linear1.weight").to_vector() == first.at("layers.0.linear1.weight").to_vector());
  CHECK(tuned.at("predictor.bias").size(0) == tokens_of(run.dir / "tuned")["vocabulary"]);
}

TEST_CASE(
    "the remedy of new tokens is for characters of all splits that the tokens lack, and for no other fault") {
  const TextFiles run("characters");
  Config config = run.tune_on("a cat ran");
  const std::string file = (run.dir / "valid.txt").string();
  config.data.options.set("valid_path", file);
  const auto error_with = [&](const std::string& text) {
    write_file(file, text);
    return training_error<DataError>(config, run.dir / "tuned");
  };
  const std::string lacks = error_with("a fox ran"), damaged = error_with("a \xFF ran");
  CHECK_MESSAGE(has_part(lacks, "data.valid_path: " + file + ":1 (byte 3): the character \"f\""), lacks);
  CHECK_MESSAGE(has_part(lacks, kRemedy), lacks);
  CHECK_MESSAGE(has_part(damaged, "is not valid UTF-8"), damaged);
  CHECK_MESSAGE(!has_part(damaged, kRemedy), damaged);

  if (no_sentencepiece()) return;
  std::vector<std::string> pieces{"\u2581", "."};
  for (const char c : std::string("acdeghinorstw")) pieces.emplace_back(1, c);
  pieces.emplace_back("\n");
  write_file(run.dir / "m.model", make_piece_model({.pieces = pieces, .add_dummy_prefix = false}));
  Config first = run.config;
  first.data.options.set("tokenizer", "sentencepiece");
  first.data.options.set("sentencepiece_model", (run.dir / "m.model").string());
  train(first, run.dir / "pieces");
  config = run.tune_on("a fox ran");
  config.model.init = (run.dir / "pieces").string();
  config.data.options.set("tokenizer", "sentencepiece");
  const std::string pieces_lack = training_error<DataError>(config, run.dir / "tuned");
  CHECK_MESSAGE(has_part(pieces_lack, "or set data.unknown_characters = \"token\"; "), pieces_lack);
  CHECK_MESSAGE(has_part(pieces_lack, kRemedy), pieces_lack);
}

TEST_CASE("another kind of tokens than that of model.init is an error") {
  const TextFiles run("characters");
  Config config = run.tune_on("a cat ran");
  config.data.options.set("tokenizer", "bytes");
  const std::string error = training_error<ConfigError>(config, run.dir / "tuned");
  CHECK_MESSAGE(has_part(error, "has the tokenizer \"characters\", but data.tokenizer is \"bytes\""), error);
  CHECK_MESSAGE(has_part(error, kRemedy), error);
  config.model.init_tokens = "new";
  CHECK_NOTHROW(train(config, run.dir / "tuned"));

  Config symbols = make_tiny_sequence_config();
  symbols.model.init = run.path();
  CHECK(has_part(training_error<ConfigError>(symbols, run.dir / "copy"),
                 "are not those of data.dataset = \"copy\""));
  symbols.model.init = "";
  train(symbols, run.dir / "copy");
  config.model.init = (run.dir / "copy").string();
  config.model.init_tokens = "keep";
  CHECK(has_part(training_error<ConfigError>(config, run.dir / "bytes"),
                 "are not those of data.dataset = \"text\""));
  const TextFiles bytes("bytes");
  CHECK_NOTHROW(train(bytes.tune_on("any words"), bytes.dir / "tuned"));
}

TEST_CASE("a run with model.init has the SentencePiece model of the weights, or the same model in a file") {
  if (no_sentencepiece()) return;
  TranslationFiles files;
  Config config = files.config;
  config.data.options.set("tokenizer", "sentencepiece");
  config.data.options.set("vocabulary", 280);
  train(config, files.dir / "first");
  const double loss =
      get_metric_number(read_metrics((files.dir / "first/metrics.jsonl").string()).back(), "loss_nats", -1);
  files.write("train", 300, 9);
  Config tuning = make_tuning(config, files.dir / "first");
  tuning.train.steps = 1;
  {
    const MessageLog log;
    tuning.data.options.set("vocabulary", 290);
    train(tuning, files.dir / "tuned");
    CHECK_MESSAGE(
        has_part(log.text(), "data.vocabulary = 290 has no effect: the tokenizer of model.init has 280"),
        log.text());
  }
  CHECK(tokens_of(files.dir / "tuned") == tokens_of(files.dir / "first"));
  CHECK(get_metric_number(read_metrics((files.dir / "tuned/metrics.jsonl").string()).back(), "loss_nats",
                          -1) == doctest::Approx(loss).epsilon(1e-6));

  const auto write_model = [&](const std::filesystem::path& run) {
    const Checkpoint checkpoint(find_checkpoint(run.string(), false));
    write_file(files.dir / "m.model",
               parse_tokenizer(checkpoint.read_state().task_json, "state")->serialize());
  };
  tuning.data.options.erase("vocabulary");
  tuning.data.options.set("sentencepiece_model", (files.dir / "m.model").string());
  write_model(files.dir / "first");
  CHECK_NOTHROW(train(tuning, files.dir / "same"));
  train(config, files.dir / "other");  // the pairs have changed
  write_model(files.dir / "other");
  const std::string error = training_error<ConfigError>(tuning, files.dir / "refused");
  CHECK_MESSAGE(has_part(error, "has another SentencePiece model than " + (files.dir / "m.model").string()),
                error);
  CHECK_MESSAGE(has_part(error, kRemedy), error);
  tuning.model.init_tokens = "new";
  CHECK_NOTHROW(train(tuning, files.dir / "new"));
  CHECK(tokens_of(files.dir / "new") == tokens_of(files.dir / "other"));
}

TEST_CASE("a run with model.init has the phones of the weights; other phones are an error, or start anew") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 6);
  Config config = make_tiny_speech_config(dir / "an4");
  train(config, dir / "run");
  const std::string texts = read_file(dir / "an4/etc/an4_train.transcription");
  const auto rename = [&](const std::string& phone) {
    write_file(dir / "an4/etc/an4.dic", "A A\nB B\nC " + phone + "\n");
    return make_tuning(config, dir / "run");
  };
  {
    const MessageLog log;
    train(rename("B"), dir / "fewer");
    CHECK_MESSAGE(has_part(log.text(), "the phones are those of model.init: 3 phones"), log.text());
  }
  CHECK(tokens_of(dir / "fewer")["phones"] == nlohmann::json({"A", "B", "C"}));
  Config tuning = rename("D");
  const std::string error = training_error<DataError>(tuning, dir / "other");
  CHECK_MESSAGE(has_part(error, "the phones of model.init lack D"), error);
  CHECK_MESSAGE(has_part(error, kRemedy), error);
  tuning.model.init_tokens = "new";
  train(tuning, dir / "new");
  CHECK(tokens_of(dir / "new")["phones"] == nlohmann::json({"A", "B", "D"}));
  // A resumed run compares its phones with those of the data, unless they are those of model.init.
  tuning.train.epochs = 3;
  CHECK(train(tuning, dir / "new", true).step > 0);
  tuning = rename("B");
  tuning.train.epochs = 3;
  CHECK(train(tuning, dir / "fewer", true).step > 0);
}

TEST_CASE("a run with model.init warns of settings with which the weights compute another function") {
  const TextFiles run("bytes");
  Config config = run.tune_on("a cat ran");
  {
    const MessageLog log;
    train(config, run.dir / "same");
    CHECK_MESSAGE(!has_part(log.text(), "another function"), log.text());
  }
  config.model.options.set("activation", "gelu");
  const MessageLog log;
  train(config, run.dir / "tuned");
  CHECK_MESSAGE(
      has_part(log.text(), "model.init: the weights are those of a training with model.activation = "),
      log.text());
}
