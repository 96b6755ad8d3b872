// Commands on a language model whose tokens are those of a tokenizer.json.
#include <nlohmann/json.hpp>

#include "tests/train/cli/text_run.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A TextRun with a tokenizer.json in its folder and the config CONFIG.
class BpeRun : public TextRun {
 public:
  explicit BpeRun(const Json& changes = Json::object()) : TextRun("linear", "bytes") {
    Json json = Json::parse(read_file(fs::path(SOURCE_DIR "/tests/golden/bpe_tokenizer.json")));
    json.update(changes);
    write_file(tokenizer_path(), json.dump());
    config.data.options.set("tokenizer", "bpe");
    config.data.options.set("tokenizer_file", tokenizer_path().string());
    config.data.options.set("sequence_length", 20);
    write_file(dir / "c.toml", to_toml(config));
  }
  fs::path tokenizer_path() const { return dir / "tokenizer.json"; }
  ProgramResult train_to(const std::string& steps) const {
    return run_program({"train", (dir / "c.toml").string(), "--run-dir", bpe_path(), "--resume", "--set",
                        "train.steps=" + steps});
  }
  std::string bpe_path() const { return (dir / "bpe").string(); }
};

}  // namespace

TEST_CASE("a checkpoint contains the BPE tokenizer, and eval, score and generate use it") {
  const BpeRun run;
  CHECK(run.train_to("3").code == 0);
  fs::remove(run.tokenizer_path());
  const ProgramResult drawn =
      run_program({"generate", run.bpe_path(), "--prompt", "the cat<|end|>", "--length", "5", "--json"});
  CAPTURE(drawn.err);
  REQUIRE(drawn.code == 0);
  CHECK(Json::parse(drawn.out)["prompt_tokens"] == 6);  // "the", " ", "c", "a", "t", the special token
  const ProgramResult evaluated = run_program({"eval", run.bpe_path(), "--split", "test", "--json"});
  REQUIRE(evaluated.code == 0);
  const Json metrics = Json::parse(evaluated.out);
  const double bytes = metrics["bytes"], tokens = metrics["tokens"];
  CHECK(tokens < bytes);
  CHECK(metrics["bits_per_byte"].get<double>() ==
        doctest::Approx(metrics["bits_per_dim"].get<double>() * tokens / bytes));
  write_file(run.dir / "lines.txt", std::string("a dog ran.\n\nthe cat\n"));
  const ProgramResult scored = run_program({"score", run.bpe_path(), (run.dir / "lines.txt").string()});
  CHECK(scored.code == 0);
  CHECK(contains(scored.out, "\ta dog ran.\n"));
}

TEST_CASE("a resumed run requires the same BPE tokenizer") {
  BpeRun run;
  CHECK(run.train_to("3").code == 0);
  CHECK(contains(run.train_to("4").err, "at step 3 of 4"));
  Json json = Json::parse(read_file(run.tokenizer_path()));
  json["added_tokens"][0]["content"] = "<end>";
  write_file(run.tokenizer_path(), json.dump());
  const ProgramResult changed = run.train_to("5");
  CHECK(changed.code == 2);
  CHECK(contains(changed.err, "the tokenizer, the phones or the statistics of the training data differ"));
}

TEST_CASE("generate ends a text at a stop token, and begins it with the start tokens") {
  std::vector<int> all(427);
  for (int i = 0; i < 427; ++i) all[static_cast<size_t>(i)] = i;
  const BpeRun stopping(Json{{"tapeformer", {{"stop_tokens", all}, {"vocabulary", 427}}}});
  CHECK(stopping.train_to("3").code == 0);
  const ProgramResult stopped =
      run_program({"generate", stopping.bpe_path(), "--prompt", "the cat", "--length", "9"});
  CHECK(stopped.out == "the cat\n");
  CHECK(contains(stopped.err, "1 tokens in"));
  const Json part =
      Json::parse(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|pad|>","type_id":0}},
      {"Sequence":{"id":"A","type_id":0}}],"pair":[],
      "special_tokens":{"<|pad|>":{"id":"<|pad|>","ids":[422],"tokens":["<|pad|>"]}}})");
  const BpeRun starting(Json{{"post_processor", part}});
  CHECK(starting.train_to("3").code == 0);
  const ProgramResult drawn = run_program({"generate", starting.bpe_path(), "--length", "5", "--json"});
  CAPTURE(drawn.err);
  REQUIRE(drawn.code == 0);
  CHECK(Json::parse(drawn.out)["prompt"] == "");
  CHECK(Json::parse(drawn.out)["prompt_tokens"] == 1);
}

TEST_CASE("a missing or damaged tokenizer.json is an error before anything is written") {
  BpeRun run;
  write_file(run.tokenizer_path(), std::string("{\"model\":"));
  const ProgramResult damaged = run.train_to("3");
  CHECK(damaged.code == 3);
  CHECK(contains(damaged.err, "tokenizer.json: is not valid JSON at byte"));
  CHECK_FALSE(fs::exists(run.bpe_path()));
  fs::remove(run.tokenizer_path());
  CHECK(run.train_to("3").code == 3);
  run.config.data.options.set("tokenizer_file", "");
  write_file(run.dir / "c.toml", to_toml(run.config));
  const ProgramResult unnamed = run.train_to("3");
  CHECK(unnamed.code == 2);
  CHECK(contains(unnamed.err, "data.tokenizer_file: the tokenizer \"bpe\" needs a tokenizer.json"));
}

TEST_CASE("a run with model.init has the BPE tokenizer of its weights") {
  BpeRun run;
  CHECK(run.train_to("3").code == 0);
  const auto tune = [&](const std::string& file) {
    return run_program({"train", (run.dir / "c.toml").string(), "--run-dir", (run.dir / "tuned").string(),
                        "--set", "model.init=" + run.bpe_path(), "--set", "data.tokenizer_file=" + file,
                        "--resume"});
  };
  Json json = Json::parse(read_file(run.tokenizer_path()));
  json["added_tokens"][0]["content"] = "<end>";
  write_file(run.dir / "other.json", json.dump());
  const ProgramResult other = tune((run.dir / "other.json").string());
  CHECK(other.code == 2);
  CHECK(contains(other.err, "has another BPE tokenizer than"));
  const ProgramResult tuned = tune("");
  CAPTURE(tuned.err);
  CHECK(tuned.code == 0);
  CHECK(contains(tuned.err, "the tokens are those of model.init: bpe, 427 tokens"));
  CHECK(tune("").code == 0);  // resumes
}
