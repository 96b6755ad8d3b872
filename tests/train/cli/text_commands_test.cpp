// Tests of the commands generate, score and eval with language models: prompts, sampling, contexts and
// invalid input.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/data/text/piece_model.h"
#include "tests/support/encoded.h"
#include "tests/train/cli/program.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"
#include "train/inference/run.h"
#include "train/inference/text.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;

// A language model that was trained for three steps on a text of three sentences. call() runs a command on
// the model.
class TextRun {
 public:
  explicit TextRun(const std::string& attention = "linear", const std::string& tokenizer = "characters",
                   const std::string& positions = "sinusoidal") {
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += i % 3 == 0 ? "the cat sat.\n" : i % 3 == 1 ? "a dog ran.\n" : "so it was.\n";
    write_file(text_path(), text);
    config.run = {.name = "tiny", .seed = 3, .device = "cpu", .threads = 1};
    config.data = {.dataset = "text", .batch_size = 4};
    config.data.path = text_path().string();
    config.data.tokenizer = tokenizer;
    config.data.sequence_length = 40;
    config.data.valid_share = config.data.test_share = 0.1;
    config.model.type = "sequence";
    config.model.attention = {attention};
    config.model.positions = positions;
    config.model.layers = 1;
    config.model.heads = 2;
    config.model.head_dim = 8;
    config.model.feedforward = 16;
    config.attention = {{attention, find_attention_kind(attention).make_options(
                                        find_attention_kind(attention).test_options)}};
    config.train.steps = 3;
    train(config, dir / "run");
  }
  fs::path text_path() const { return dir / "text.txt"; }
  std::string path() const { return (dir / "run").string(); }
  ProgramResult call(Words words, const Words& extra_words = {}, const std::string& in = "/dev/null") const {
    words.insert(words.begin() + 1, path());
    words.insert(words.end(), extra_words.begin(), extra_words.end());
    return run_program(words, "", in);
  }

  TempDir dir;
  Config config;
};

bool no_sentencepiece() {
  try {
    make_sentencepiece_tokenizer("", "");
  } catch (const ConfigError&) {
    MESSAGE("skipped: built without SentencePiece");
    return true;
  } catch (const DataError&) {
  }
  return false;
}

// Returns the characters of the text of a TextRun as pieces of a SentencePiece model.
std::vector<std::string> character_pieces() {
  std::vector<std::string> pieces{"\u2581", ".", "\n"};
  for (const char c : std::string("acdeghinorstw")) pieces.emplace_back(1, c);
  return pieces;
}

std::string generated(const TextRun& run, const Words& options) {
  const ProgramResult result = run.call({"generate"}, options);
  CAPTURE(result.err);
  CHECK(result.code == 0);
  return result.out;
}

}  // namespace

TEST_CASE("generate and score need only the checkpoint") {
  TextRun run;
  fs::remove(run.text_path());
  const Words options{"--prompt", "the ", "--length", "20", "--seed", "7"};
  const std::string text = generated(run, options);
  CHECK(text.starts_with("the "));
  CHECK(text.size() == 4 + 20 + 1);
  CHECK(generated(run, options) == text);
  CHECK(generated(run, {"--prompt", "the ", "--length", "20", "--seed", "8"}) != text);
  // The default mode and the mode "recompute" generate the same tokens.
  CHECK(generated(run, {"--prompt", "the ", "--length", "20", "--seed", "7", "--mode", "recompute"}) == text);
  write_file(run.dir / "lines", std::string("the cat\n\na dog"));
  const auto scores = parse_json_output(run.call({"score", (run.dir / "lines").string(), "--json"}));
  CHECK(scores["lines"] == 3);
  CHECK(scores["bytes"] == 8 + 1 + 6);
}

TEST_CASE("a converted run has no tokenizer and no optimizer state, and is evaluated, sampled and resumed") {
  TextRun run;
  CheckpointContents contents = read_checkpoint_contents(run.dir / "run");
  contents.optimizer_tensors.clear();
  contents.state = {.step = 0, .is_converted = true};
  const std::string converted = (run.dir / "converted").string();
  run.config.optimizer.ema = 0.5;
  run.config.optimizer.lr = 0;
  contents.config_toml = to_toml(run.config);
  save_checkpoint(converted, contents);
  const Words eval{"eval", run.path(), "--json"}, eval_converted{"eval", converted, "--json"};
  const double bits = parse_json_output(run_program(eval))["bits_per_dim"];
  CHECK(parse_json_output(run_program(eval_converted))["bits_per_dim"] == bits);
  CHECK(run_program({"generate", converted, "--prompt", "the ", "--length", "20"}).out ==
        generated(run, {"--prompt", "the ", "--length", "20"}));
  write_file(run.dir / "lines", std::string("the cat\n"));
  CHECK(run_program({"score", converted, (run.dir / "lines").string()}).code == 0);
  // With a learning rate of 0, the resumed run keeps the weights and their average.
  write_file(run.dir / "config.toml", contents.config_toml);
  const Words resume{"train", (run.dir / "config.toml").string(), "--run-dir", converted, "--resume"};
  const ProgramResult resumed = run_program(resume);
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "step-00000000 at step 0 of 3"));
  CHECK(parse_json_output(run_program(eval_converted))["bits_per_dim"].get<double>() ==
        doctest::Approx(bits));
  CHECK(!contains(read_file(fs::path(converted) / "checkpoints/latest/state.json"), "converted"));
  // Without the text, there is no tokenizer.
  fs::remove_all(fs::path(converted) / "checkpoints");
  save_checkpoint(converted, contents);
  fs::remove(run.text_path());
  const ProgramResult missing = run_program(eval_converted);
  CHECK(missing.code == 3);
  CHECK(contains(missing.err, "data.path: " + run.text_path().string()));
}

TEST_CASE("sampling options restrict the draws") {
  const TextRun run("softmax", "bytes");
  const Words prompt{"--prompt", "the ", "--length", "30"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), prompt.begin(), prompt.end());
    return generated(run, more);
  };
  const std::string greedy = with({"--greedy"});
  CHECK(with({"--temperature", "0"}) == greedy);
  CHECK(with({"--top-k", "1"}) == greedy);
  CHECK(with({"--top-p", "1e-6"}) == greedy);
  CHECK(with({"--top-k", "256"}) == with({}));
  CHECK(with({"--temperature", "0.5"}) != with({}));
  CHECK(with({"--count", "3"}).find("\n---\n") != std::string::npos);
}

TEST_CASE("generate --json reports the texts and the speed") {
  const TextRun run;
  const auto report =
      parse_json_output(run.call({"generate", "--json", "--prompt", "a ", "--length", "10", "--count", "2"}));
  CHECK(report["count"] == 2);
  CHECK(report["prompt"] == "a ");
  CHECK(report["length"] == 10);
  CHECK(report["tokens_per_second"] > 0);
  CHECK(report["state_bytes"] == 2 * (8 * 8 + 8) * 4);
  CHECK(report["texts"].size() == 2);
  CHECK(report["texts"][0].get<std::string>().size() == 10);
  CHECK(report["texts"][0] != report["texts"][1]);
}

TEST_CASE("prompts come from the command line, a file or standard input") {
  const TextRun run;
  write_file(run.dir / "prompt", std::string("a dog "));
  const std::string file = (run.dir / "prompt").string(), expected = generated(run, {"--prompt", "a dog "});
  CHECK(generated(run, {"--prompt-file", file}) == expected);
  CHECK(run.call({"generate", "--prompt-file", "-"}, {}, file).out == expected);
  CHECK(run.call({"generate", "-"}, {}, file).out == expected);
  CHECK(generated(run, {}).starts_with("\n"));
}

TEST_CASE("prompts that the model cannot continue are usage errors") {
  const TextRun run;
  const auto error = [&](const Words& options, int code = 2) {
    const ProgramResult result = run.call({"generate"}, options);
    CHECK(result.code == code);
    CHECK(result.out.empty());
    return result.err;
  };
  CHECK(contains(
      error({"--prompt", "the Cat"}),
      "the prompt, byte 4: the character \"C\" (U+0043) is not in the vocabulary of the training text"));
  CHECK(contains(error({"--prompt", "the \xFF"}), "the prompt, byte 4: is not valid UTF-8"));
  CHECK(contains(error({"--prompt", ""}), "--prompt: the value is empty"));
  CHECK(contains(error({"--prompt", std::string(41, 'a')}),
                 "the prompt has 41 tokens, expected at most 40: the model has sinusoidal positions"));
  CHECK(contains(error({"--prompt", "the ", "--length", "38"}),
                 "expected at most 37: the model has sinusoidal"));
  CHECK(
      contains(error({"--prompt", "the ", "--length", "38", "--mode", "recompute"}), "expected at most 37"));
  CHECK(contains(error({"--window", "41"}),
                 "--window 41: expected at most data.sequence_length = 40 with sinusoidal positions"));
  CHECK(contains(error({"--window", "-1"}), "--window"));
  CHECK(contains(error({"--prompt", "a", "--prompt-file", "b"}), "expected one of"));
  CHECK(contains(error({"--prompt-file", "/nonexistent"}, 3), "/nonexistent"));
  CHECK(contains(error({"--greedy", "--temperature", "2"}), "cannot be combined"));
  CHECK(contains(error({"--out", "a.png"}), "--out is for models of images"));
}

TEST_CASE("score prints the bits that the library computes for a line and its end") {
  const TextRun run("softmax", "bytes");
  write_file(run.dir / "lines", std::string("the cat sat.\nso\n"));
  const std::string path = (run.dir / "lines").string();
  const LoadedRun loaded = load_run({.path = run.path(), .config_settings = {}});
  double bits = 0;
  for (const double nats : compute_token_losses(*loaded.model, std::vector<int64_t>{'\n', 's', 'o', '\n'}))
    bits += nats / std::log(2);
  const auto report = parse_json_output(run.call({"score", path, "--json"}));
  CHECK(std::abs(report["scores"][1]["bits"].get<double>() - bits) < 1e-4);
  CHECK(report["scores"][1]["bytes"] == 3);
  const ProgramResult text = run.call({"score", path});
  CHECK(text.out.ends_with("\tso\n"));
  CHECK(std::abs(std::stod(text.out.substr(text.out.find('\n') + 1)) - bits) < 1e-2);
  CHECK(run.call({"score", "-"}, {}, path).out == text.out);
}

TEST_CASE("score counts no token of the line end before a line, also if a line end has several tokens") {
  if (no_sentencepiece()) return;
  TextRun run("softmax", "bytes");
  // As in Llama, a line begins with a space, and a line end is a byte.
  write_file(run.dir / "m.model",
             make_piece_model({.pieces = {"\u2581", "\u2581the", "s", "o"}, .byte_fallback = true}));
  run.config.data.tokenizer = "sentencepiece";
  run.config.data.sentencepiece_model = (run.dir / "m.model").string();
  train(run.config, run.dir / "pieces");
  const std::string path = (run.dir / "pieces").string();
  const LoadedRun loaded = load_run({.path = path, .config_settings = {}});
  write_file(run.dir / "lines", std::string("the\n\nso"));
  const auto scores =
      parse_json_output(run_program({"score", path, (run.dir / "lines").string(), "--json"}))["scores"];
  const std::vector<std::string> lines{"the\n", "\n", "so\n"};
  const size_t sizes[] = {5, 2, 4};  // with the space and the line end
  const auto end = loaded.tokenizer->encode("\n");
  CHECK(end.size() == 2);
  for (size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    CHECK(scores[i]["bytes"] == sizes[i]);
    std::vector<int64_t> tokens(end.begin(), end.end());
    const auto own = loaded.tokenizer->encode(lines[i]);
    tokens.insert(tokens.end(), own.begin(), own.end());
    const auto nats = compute_token_losses(*loaded.model, tokens);
    double bits = 0;
    for (size_t j = nats.size() - own.size(); j < nats.size(); ++j) bits += nats[j] / std::log(2);
    CHECK(std::abs(scores[i]["bits"].get<double>() - bits) < 1e-4);
  }
}

TEST_CASE("unknown characters are refused with their position and the key that accepts them, or counted") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  std::vector<std::string> pieces = character_pieces();
  pieces.pop_back();  // "w"
  write_file(run.dir / "m.model", make_piece_model({.pieces = pieces, .add_dummy_prefix = false}));
  run.config.data.tokenizer = "sentencepiece";
  run.config.data.sentencepiece_model = (run.dir / "m.model").string();
  CHECK(message_of<DataError>([&] { train(run.config, run.dir / "pieces"); }) ==
        "data.path: " + run.text_path().string() +
            ":3 (byte 30): the character \"w\" (U+0077) is not in the vocabulary of the SentencePiece model; "
            "train "
            "the model with the option --byte_fallback of spm_train, or set data.unknown_characters = "
            "\"token\"");
  run.config.data.unknown_characters = "token";
  train(run.config, run.dir / "pieces");
  const std::string path = (run.dir / "pieces").string();
  for (const Words& options : {Words{}, Words{"--context", "carried", "--limit", "39"}}) {
    Words words{"eval", path, "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const auto report = parse_json_output(run_program(words));
    const auto unknown = report["unknown_tokens"].get<double>(), tokens = report["tokens"].get<double>();
    CHECK(unknown > 0);
    CHECK(report["unknown_share"].get<double>() == doctest::Approx(unknown / tokens));
    CHECK(report["bytes"].get<double>() == tokens - unknown);
  }
  write_file(run.dir / "lines", std::string("so it was\nthe cat\n"));
  const std::string lines = (run.dir / "lines").string();
  const auto report = parse_json_output(run_program({"score", path, lines, "--json"}));
  CHECK(report["unknown_tokens"] == 1);
  CHECK(report["scores"][0]["bytes"] == 9);
  CHECK(report["scores"][1]["bytes"] == 8);
  const ProgramResult refused =
      run_program({"score", path, lines, "--set", "data.unknown_characters=refuse"});
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "lines:1, byte 6: the character \"w\" (U+0077)"));
  CHECK(contains(refused.err, "or set data.unknown_characters = \"token\""));
  // The model draws mainly from equal probabilities, and an unknown token is printed as U+FFFD.
  const ProgramResult text =
      run_program({"generate", path, "--prompt", "w", "--length", "38", "--count", "40"});
  CHECK(text.code == 0);
  CHECK(contains(text.out, "\uFFFD"));
}

TEST_CASE("errors of score contain the number of an unreadable line") {
  const TextRun run;
  write_file(run.dir / "lines", std::string("the cat\na DOG\n"));
  ProgramResult result = run.call({"score", (run.dir / "lines").string()});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "lines:2, byte 2: the character \"D\" (U+0044) is not in the vocabulary"));
  write_file(run.dir / "long", "the\n" + std::string((1 << 24) + 1, 'a'));
  result = run.call({"score", (run.dir / "long").string()});
  CHECK(result.code == 3);
  CHECK(contains(result.err, "long:2: the line has 16777217 bytes, expected at most 16777216"));
  write_file(run.dir / "empty", std::string());
  CHECK(contains(run.call({"score", (run.dir / "empty").string()}).err, "no text: the size is 0 bytes"));
  result = run.call({"score", "-"}, {}, (run.dir / "empty").string());
  CHECK(result.code == 3);
  CHECK(contains(result.err, "standard input: no text: the size is 0 bytes"));
}

TEST_CASE("a byte order mark is not a part of a prompt or a scored text, and UTF-16 is named") {
  const TextRun run;
  const std::string text = "a cat\nso it was\n", marked = "\xEF\xBB\xBF" + text;
  const fs::path file = run.dir / "lines.txt";
  const auto score = [&](const std::string& bytes, bool piped) {
    write_file(file, bytes);
    return piped ? run.call({"score"}, {"-"}, file.string()) : run.call({"score"}, {file.string()});
  };
  const std::string plain = score(text, false).out;
  CHECK(plain.ends_with("\tso it was\n"));
  CHECK(score(marked, false).out == plain);
  CHECK(score(marked, true).out == plain);
  const Words prompt = {"--prompt-file", file.string(), "--length", "5", "--greedy"};
  write_file(file, marked);
  CHECK(generated(run, prompt).starts_with(text));
  const std::string wide = encoded(std::u16string(text.begin(), text.end()));
  for (const bool piped : {false, true}) {
    const ProgramResult refused = score(wide, piped);
    CHECK(refused.code == 3);
    CHECK_MESSAGE(contains(refused.err, "is UTF-16, expected UTF-8; convert it: iconv -f UTF-16 -t UTF-8 "),
                  refused.err);
  }
  const ProgramResult refused = run.call({"generate"}, prompt);
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "iconv -f UTF-16 -t UTF-8 " + file.string()));
}

TEST_CASE("training refuses a text in UTF-16, and a model of bytes warns about it") {
  const TextRun run("linear", "bytes");
  const std::string text = read_file(run.text_path());
  write_file(run.text_path(), encoded(std::u16string(text.begin(), text.end()), false, false));
  write_file(run.dir / "c.toml", to_toml(run.config));
  const auto train_with = [&](const std::string& tokenizer) {
    return run_program({"train", (run.dir / "c.toml").string(), "--run-dir", (run.dir / tokenizer).string(),
                        "--set", "data.tokenizer=" + tokenizer});
  };
  const ProgramResult refused = train_with("characters"), taken = train_with("bytes");
  CHECK(refused.code == 3);
  CHECK_MESSAGE(contains(refused.err, "iconv -f UTF-16LE -t UTF-8 " + run.text_path().string()), refused.err);
  CHECK(taken.code == 0);
  CHECK_MESSAGE(contains(taken.err, "warning: " + run.text_path().string() + ": is UTF-16LE"), taken.err);
}

TEST_CASE("long lines are scored in overlapping windows") {
  const TextRun run("softmax", "bytes");
  const LoadedRun loaded = load_run({.path = run.path(), .config_settings = {}});
  std::vector<int64_t> tokens;
  for (int i = 0; i < 130; ++i) tokens.push_back('a' + i % 7);
  const auto nats = compute_token_losses(*loaded.model, tokens);
  CHECK(nats.size() == 129);
  const auto first = compute_token_losses(*loaded.model, std::span(tokens).first(41));
  for (size_t i = 0; i < first.size(); ++i) CHECK(std::abs(nats[i] - first[i]) < 1e-5);
  // The losses 40 to 59 come from the second window, which contains the tokens 20 to 60.
  const auto second = compute_token_losses(*loaded.model, std::span(tokens).subspan(20, 41));
  for (size_t i = 40; i < 60; ++i) CHECK(std::abs(nats[i] - second[i - 20]) < 1e-5);
}

TEST_CASE("eval states the context of its windows, and a carried state gives the losses of one window") {
  const TextRun run;
  const auto eval = [&](const Words& options) {
    return parse_json_output(run.call({"eval", "--json"}, options));
  };
  const auto windows = eval({});
  CHECK(windows["context"] == "windows of 40 predictions, stride 40; all predictions are scored");
  CHECK(windows["tokens"] == windows["bytes"]);
  CHECK(std::abs(windows["bits_per_byte"].get<double>() - windows["bits_per_dim"].get<double>()) < 1e-9);
  CHECK(std::abs(windows["perplexity"].get<double>() - std::exp(windows["nats_per_dim"].get<double>())) <
        1e-9);
  const auto strided = eval({"--context", "30"});
  CHECK(strided["context"] ==
        "windows of 40 predictions, stride 10; the first 30 predictions of each window but the first are not "
        "scored");
  CHECK(strided["tokens"] == windows["tokens"]);
  const auto one = eval({"--limit", "1"}), carried = eval({"--limit", "40", "--context", "carried"});
  CHECK(carried["context"] == "state carried through 1 equal parts of the split");
  CHECK(carried["tokens"] == 40);
  CHECK(std::abs(one["nats_per_dim"].get<double>() - carried["nats_per_dim"].get<double>()) < 1e-5);
  CHECK(one["accuracy"] == carried["accuracy"]);
}

TEST_CASE("without position features, texts may be longer than the windows of training") {
  for (const std::string positions : {"rotary", "none"})
    for (const std::string attention : {"linear", "softmax"}) {
      CAPTURE(positions);
      CAPTURE(attention);
      const TextRun run(attention, "bytes", positions);
      const Words options{"--json", "--prompt", std::string(50, 'a'), "--length", "200"};
      const auto report = parse_json_output(run.call({"generate"}, options));
      CHECK(report["texts"][0].get<std::string>().size() >= 200);
      CHECK(report["window"] == 40);
      const auto state = [](const nlohmann::json& generated) {
        return generated["state_bytes"].get<int64_t>();
      };
      CHECK(state(report) == (attention == "linear" ? 2 * (8 * 8 + 8) * 4 : 2 * 40 * 16 * 4));
      Words whole = options;
      whole.insert(whole.end(), {"--window", "1000"});
      CHECK(state(parse_json_output(run.call({"generate"}, whole))) ==
            (attention == "linear" ? 2 * (8 * 8 + 8) * 4 : 2 * 249 * 16 * 4));
      if (attention == "softmax") continue;
      const auto carried = parse_json_output(run.call({"eval", "--context", "carried", "--json"}));
      CHECK(carried["tokens"] == carried["bytes"]);
      CHECK(carried["tokens"] == parse_json_output(run.call({"eval", "--json"}))["tokens"]);
      const auto parts =
          parse_json_output(run.call({"eval", "--context", "carried", "--batch", "3", "--json"}));
      CHECK(parts["context"] == "state carried through 3 equal parts of the split");
      CHECK(std::abs(parts["bits_per_byte"].get<double>() - carried["bits_per_byte"].get<double>()) < 0.1);
    }
}

TEST_CASE("with a window, texts may exceed the positions of the model") {
  for (const std::string attention : {"linear", "lsh"}) {
    const TextRun run(attention);
    const Words options{"--json", "--prompt", "the cat sat.\n", "--length", "90",
                        "--seed", "4",        "--window",       "20"};
    const auto report = parse_json_output(run.call({"generate"}, options));
    CHECK(report["texts"][0].get<std::string>().size() == 90);
    CHECK(report["window"] == 20);
    Words recompute = options;
    recompute.insert(recompute.end(), {"--mode", "recompute"});
    CHECK(parse_json_output(run.call({"generate"}, recompute))["texts"] == report["texts"]);
  }
}

TEST_CASE("eval refuses contexts that the model cannot have") {
  const TextRun linear, softmax("softmax"), lsh("lsh");
  const auto error = [](const TextRun& run, const std::string& context) {
    const ProgramResult result = run.call({"eval", "--context", context});
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(contains(error(linear, "40"),
                 "expected \"carried\", or a number of tokens below data.sequence_length = 40"));
  CHECK(contains(error(linear, "none"), "expected \"carried\""));
  CHECK(contains(error(linear, "carried"), "the model has 40 positions, and a stream has"));
  CHECK(contains(error(softmax, "carried"), "grows with the text"));
  CHECK(contains(error(lsh, "carried"), "no recurrent form"));
}

TEST_CASE("a run does not resume with another vocabulary") {
  const TextRun run;
  write_file(run.text_path(), read_file(run.text_path()) + "€");
  Config config = run.config;
  config.train.steps = 5;
  CHECK(contains(message_of<ConfigError>([&] { train(config, run.dir / "run", true); }), "the tokenizer"));
}

TEST_CASE("a run that resumes with changed data writes a warning") {
  const TextRun run("linear", "bytes");
  const auto resumed = [&](const std::string& steps, const std::string& eval_limit = "0") {
    return run_program({"train", (run.dir / "run/config.toml").string(), "--run-dir", run.path(), "--resume",
                        "--set", "train.steps=" + steps, "--set", "data.eval_limit=" + eval_limit});
  };
  const ProgramResult same = resumed("4");
  CAPTURE(same.err);
  CHECK(same.code == 0);
  CHECK(!contains(same.err, "the training data have changed"));
  const ProgramResult fewer = resumed("5", "2");  // other examples for evaluation
  CAPTURE(fewer.err);
  CHECK(fewer.code == 0);
  CHECK(!contains(fewer.err, "the training data have changed"));
  std::string text = read_file(run.text_path());
  std::replace(text.begin(), text.end(), 'e', 'u');
  write_file(run.text_path(), text);
  const ProgramResult changed = resumed("6");
  CHECK(changed.code == 0);
  CHECK(contains(changed.err, "the training data have changed since this checkpoint"));
}

TEST_CASE("a checkpoint contains the SentencePiece model") {
  if (no_sentencepiece()) return;
  TextRun run("linear", "bytes");
  run.config.data.tokenizer = "sentencepiece";
  run.config.data.vocabulary = 275;
  train(run.config, run.dir / "pieces");
  fs::remove(run.text_path());
  const ProgramResult result =
      run_program({"generate", (run.dir / "pieces").string(), "--prompt", "the cat", "--length", "5"});
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(result.out.starts_with("the cat"));
}

TEST_CASE("generate advises on --length if the states do not fit into memory") {
  const TextRun run("softmax", "bytes", "rotary");
  const ProgramResult result =
      run.call({"generate"}, {"--prompt", "a", "--length", "1000000000000", "--window", "1000000000000"});
  CHECK(result.code == 1);
  CHECK(contains(result.err, "out of memory: asked for"));
  CHECK(contains(
      result.err,
      "for the states of 1000000000000 tokens; lower --length or --window, or use an attention kind"));
}

TEST_CASE("training refuses a data.test_path without text") {
  TextRun run;
  const auto error = [&](const std::string& path) {
    run.config.data.test_path = path;
    return message_of<DataError>([&] { train(run.config, run.dir / "other"); });
  };
  write_file(run.dir / "empty", std::string());
  CHECK(contains(error((run.dir / "empty").string()), "empty: no text: the size is 0 bytes"));
  CHECK(error((run.dir / "none").string()).starts_with("data.test_path: " + (run.dir / "none").string()));
  CHECK(error(run.text_path().string()).empty());
}
