// Tests of the command "linearize" and of trainings with a teacher.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/support/message_log.h"
#include "tests/train/cli/reproduce_words.h"
#include "tests/train/cli/text_run.h"
#include "tests/train/cli/translation_run.h"
#include "tests/train/exact_resume.h"
#include "train/checkpoint/checkpoint.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const Words kShort{"--transfer-steps", "4", "--steps", "2", "--threads", "1", "--device", "cpu", "--json"};

nlohmann::json linearize(const TextRun& run, const Words& options) {
  Words words = kShort;
  words.insert(words.end(), {"--run-dir", (run.dir / "new").string()});
  words.insert(words.end(), options.begin(), options.end());
  const ProgramResult result = run.call({"linearize"}, words);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  return nlohmann::json::parse(result.out);
}

}  // namespace

TEST_CASE("linearize: the first training changes new parameters only, and both models are compared") {
  const TextRun run("softmax");
  const nlohmann::json report = linearize(run, {"--set", "attention.window=8"});
  const auto teacher = read_weights(run.dir / "run"),
             transferred = read_weights(run.dir / "new" / "transfer"),
             student = read_weights(run.dir / "new");
  for (const auto& [name, values] : teacher) {
    CAPTURE(name);
    CHECK(transferred.at(name) == values);
  }
  CHECK(transferred.contains("layers.0.attention.inner_attention.window_share"));
  CHECK(student.at("predictor.weight") != teacher.at("predictor.weight"));
  // A distance of layers is not a number of bits.
  const std::string metrics = read_file(run.dir / "new" / "transfer" / "metrics.jsonl");
  const auto first = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  CHECK(first["split"] == "train");
  CHECK_FALSE(first.contains("bits_per_dim"));
  REQUIRE(report["models"].size() == 2);
  CHECK(report["models"][0]["attention"] == "softmax");
  CHECK(report["models"][1]["attention"] == "window-linear");
  for (const nlohmann::json& model : report["models"]) {
    CHECK(model["bits_per_byte"].get<double>() > 0);
    CHECK(model["state_bytes"].get<int64_t>() > 0);
  }
  CHECK(report["models"][1]["training_seconds"].get<double>() > 0);
  // A second call has nothing left to train.
  CHECK(linearize(run, {"--set", "attention.window=8"})["models"][1]["bits_per_byte"] ==
        report["models"][1]["bits_per_byte"]);
  CHECK(read_weights(run.dir / "new") == student);
}

TEST_CASE(
    "linearize: kinds with gates learn whole attention layers, and kinds without parameters only the second "
    "time") {
  const TextRun run("softmax");
  linearize(run, {"--attention", "gated-delta"});
  const auto teacher = read_weights(run.dir / "run"),
             transferred = read_weights(run.dir / "new" / "transfer");
  CHECK(transferred.at("layers.0.attention.query_projection.weight") !=
        teacher.at("layers.0.attention.query_projection.weight"));
  CHECK(transferred.at("layers.0.linear1.weight") == teacher.at("layers.0.linear1.weight"));

  const TextRun other("softmax");
  linearize(other, {"--attention", "linear"});
  CHECK_FALSE(std::filesystem::exists(other.dir / "new" / "transfer"));
}

TEST_CASE("linearize: what cannot work is refused before a training") {
  const TextRun run("softmax");
  const auto error = [&](const Words& options) {
    Words words = kShort;
    words.insert(words.end(), {"--run-dir", (run.dir / "new").string()});
    words.insert(words.end(), options.begin(), options.end());
    const ProgramResult result = run.call({"linearize"}, words);
    CHECK(result.code == 2);
    CHECK_FALSE(std::filesystem::exists(run.dir / "new"));
    return result.err;
  };
  CHECK(error({"--attention", "lsh"}).find("no recurrent form") != std::string::npos);
  CHECK(error({"--attention", "liner"}).find("linear") != std::string::npos);
  CHECK(error({"--keep", "1"}).find("from 0 on") != std::string::npos);
  CHECK(error({"--keep", "0"}).find("no layer is left") != std::string::npos);
  CHECK(error({"--set", "attention.window=1000"}).find("expected less than the length") != std::string::npos);
}

TEST_CASE("linearize: a run directory that belongs to something else is refused before a training") {
  const TextRun run("softmax");
  const auto error = [&](const std::string& folder) {
    const ProgramResult result = run.call({"linearize"}, {"--run-dir", folder});
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK(error(run.path()).find("is the run of the teacher") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(run.dir / "run" / "transfer"));
  CHECK(error(run.text_path().string()).find("is not a folder") != std::string::npos);
  CHECK(error(run.dir.path().string()).find("has other files") != std::string::npos);
}

TEST_CASE("linearize: the student can read longer sequences, and a teacher that has changed is refused") {
  const TextRun run("softmax");
  const Words longer{"--set", "attention.window=8", "--set", "data.sequence_length=80"};
  linearize(run, longer);
  Config other = run.config;
  other.optimizer.lr = 0.1;
  train(other, run.dir / "other");
  std::filesystem::remove_all(run.dir / "run" / "checkpoints");
  std::filesystem::rename(run.dir / "other" / "checkpoints", run.dir / "run" / "checkpoints");
  Words words = kShort;
  words.insert(words.end(), {"--run-dir", (run.dir / "new").string()});
  words.insert(words.end(), longer.begin(), longer.end());
  const ProgramResult changed = run.call({"linearize"}, words);
  CHECK(changed.code == 2);
  CHECK_MESSAGE(changed.err.find("the weights of distill.teacher") != std::string::npos, changed.err);
}

TEST_CASE("linearize: in a hybrid, options without a kind are those of the new kind") {
  TextRun run("softmax");
  Config config = run.config;
  config.model.options.set("layers", 2);
  config.train.steps = 1;
  train(config, run.dir / "two");
  Words words{"linearize",   (run.dir / "two").string(),
              "--attention", "linear",
              "--keep",      "1",
              "--set",       "attention.feature_map=hedgehog",
              "--run-dir",   (run.dir / "new").string()};
  words.insert(words.end(), kShort.begin(), kShort.end());
  const ProgramResult result = run_program(words);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  CHECK(nlohmann::json::parse(result.out)["models"][1]["attention"] == "linear, softmax");
}

TEST_CASE("linearize: models that translate learn with another attention, from the data") {
  const TranslationFiles files;
  const std::string teacher = (files.dir / "run").string(), student = (files.dir / "new").string();
  train(files.config, teacher);
  Words words{"linearize", teacher, "--attention", "linear", "--set", "model.cross_attention=linear",
              "--run-dir", student};
  words.insert(words.end(), kShort.begin(), kShort.end());
  const ProgramResult result = run_program(words);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const auto report = nlohmann::json::parse(result.out);
  for (const nlohmann::json& model : report["models"]) CHECK(model["bleu"].is_number());
  CHECK(report["models"][1]["attention"] == "linear");
  CHECK(read_weights(teacher) != read_weights(student));
}

TEST_CASE("a row of a table linearizes the model of another row, with the same seed") {
  const TempDir dir;
  write_file(dir / "sweep.toml", std::string(R"(
seeds = [3]
config = "copy/softmax.toml"
settings = ["model.layers=1", "model.heads=2", "model.head_dim=8", "model.feedforward=16", "data.max_length=16", "train.steps=2", "data.eval_limit=4"]
[[rows]]
name = "teacher"
[[rows]]
name = "student"
trained = false
fixed = ["model.attention=window-linear", "attention.window=4"]
[[measurements]]
kind = "linearization"
rows = ["student"]
teacher = "teacher"
transfer_steps = 2
steps = 2
columns = ["accuracy", {name = "teacher", key = "teacher.attention"}]
)"));
  const ProgramResult result = run_program(reproduce_command((dir / "sweep.toml").string(), dir / "out", {}));
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  const Json table = parse_json_output(result);
  CHECK(row_of(table, "student")["cells"]["accuracy"]["mean"].is_number());
  CHECK(row_of(table, "student")["cells"]["teacher"]["text"] == "softmax");
  CHECK(std::filesystem::exists(dir / "out" / "runs" / "student-seed-3" / "transfer"));
}

TEST_CASE("a training with a teacher of other tokens is an error") {
  const TextRun run("softmax"), other("softmax", "bytes");
  Config config = run.config;
  config.distill.teacher = other.path();
  CHECK_THROWS_WITH_AS(train(config, run.dir / "new"),
                       doctest::Contains("distill.teacher: the teacher has other tokens"), ConfigError);
}
