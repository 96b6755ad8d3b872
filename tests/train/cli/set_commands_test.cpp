// Tests of the commands "train" and "eval" for models of the type "set", whose inputs are sets of vectors.
// The tests cover resumed runs, the scores of "eval", and errors about contradictory settings.
#include <doctest/doctest.h>

#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<std::string> training(const std::string& config, const std::filesystem::path& run,
                                  const std::vector<std::string>& settings) {
  std::vector<std::string> words = {
      "train",     std::string(SOURCE_DIR) + "/configs/survey/" + config + ".toml",
      "--quiet",   "--json",
      "--run-dir", run.string()};
  for (const char* setting :
       {"data.batch_size=8", "data.eval_limit=20", "model.head_dim=4", "model.feedforward=8",
        "model.dropout=0.1", "train.checkpoint_every=3", "train.eval_every=6", "train.log_every=1"})
    words.insert(words.end(), {"--set", setting});
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return words;
}

const std::vector<std::string> kShortSets = {"data.min_length=4", "data.max_length=12"};

}  // namespace

TEST_CASE("sets: a resumed run equals an uninterrupted run, and eval reports the scores") {
  const TempDir dir;
  for (const std::string config : {"set-maximum", "set-mixture"}) {
    CAPTURE(config);
    const auto whole = dir / (config + "-whole"), parts = dir / (config + "-parts");
    const auto words = [&](const std::filesystem::path& run, const std::string& steps) {
      std::vector<std::string> settings = kShortSets;
      settings.insert(settings.end(), {"run.device=cpu", steps});
      return training(config, run, settings);
    };
    const ProgramResult trained = run_program(words(whole, "train.steps=6"));
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);
    REQUIRE(run_program(words(parts, "train.steps=3")).code == 0);
    auto resumed = words(parts, "train.steps=6");
    resumed.emplace_back("--resume");
    REQUIRE(run_program(resumed).code == 0);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK(read_file(whole / "checkpoints/step-00000006" / file) ==
            read_file(parts / "checkpoints/step-00000006" / file));
    const auto result = parse_json_output(run_program({"eval", whole.string(), "--limit", "30", "--json"}));
    CHECK(result["examples"] == 30);
    if (config == "set-maximum") {
      CHECK(result["mean_absolute_error"] > 0);
      continue;
    }
    CHECK(result["log_likelihood"] == -result["nats_per_element"].get<double>());
    CHECK(result["oracle_log_likelihood"] > result["log_likelihood"]);
    CHECK(result["oracle_log_likelihood"].get<double>() == doctest::Approx(-1.45).epsilon(0.2));
  }
}

TEST_CASE("sets: configs that contradict each other are usage errors") {
  const TempDir dir;
  const auto error_of = [&](const std::vector<std::string>& settings) {
    const ProgramResult result = run_program(training("set-mixture", dir / "run", settings));
    CHECK(result.code == 2);
    return result.err;
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  contains(error_of({"model.type=sequence"}),
           "data set \"set-mixture\" needs type \"set\", got \"sequence\"");
  contains(error_of({"data.dataset=listops"}),
           "data set \"listops\" needs type \"classification\", got \"set\"");
  contains(error_of({"data.min_length=501"}), "expected at most max_length = 500, got 501");
  contains(error_of({"model.norm=pre", "model.reversible=true"}), "model.reversible: models of sets have no");
  contains(error_of({"attention.inducing_points=0"}), "attention.inducing_points");
}
