// Tests of commands for classifiers: training, resume and evaluation on ListOps and on images with labels.
#include <doctest/doctest.h>

#include "tests/train/cli/program.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<std::string> training(const std::filesystem::path& run,
                                  const std::vector<std::string>& settings) {
  std::vector<std::string> words = {
      "train",     (std::filesystem::path(SOURCE_DIR) / "configs/survey/linformer.toml").string(),
      "--quiet",   "--json",
      "--device",  "cpu",
      "--run-dir", run.string()};
  for (const char* setting :
       {"data.max_length=40", "data.batch_size=4", "data.eval_limit=6", "model.layers=2", "model.heads=2",
        "model.head_dim=4", "model.feedforward=8", "attention.rank=5", "train.checkpoint_every=3",
        "train.eval_every=6", "train.log_every=1"})
    words.insert(words.end(), {"--set", setting});
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return words;
}

}  // namespace

TEST_CASE("classification: a resumed run with a kind that owns parameters equals an uninterrupted run") {
  const TempDir dir;
  for (const char* sharing : {"attention.sharing=none", "attention.sharing=layerwise"}) {
    const auto whole = dir / (std::string(sharing) + "-whole"),
               parts = dir / (std::string(sharing) + "-parts");
    const ProgramResult trained = run_program(training(whole, {sharing, "train.steps=6"}));
    CAPTURE(trained.err);
    REQUIRE(trained.code == 0);
    CHECK(parse_json_output(trained)["examples"] == 6);
    CHECK(parse_json_output(trained)["accuracy"].is_number());
    REQUIRE(run_program(training(parts, {sharing, "train.steps=3", "train.eval_every=6"})).code == 0);
    auto words = training(parts, {sharing, "train.steps=6"});
    words.emplace_back("--resume");
    REQUIRE(run_program(words).code == 0);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      CHECK(read_file(whole / "checkpoints/step-00000006" / file) ==
            read_file(parts / "checkpoints/step-00000006" / file));
  }
}

TEST_CASE("classification: eval reports the loss and the accuracy, and generate refuses a classifier") {
  const TempDir dir;
  REQUIRE(run_program(training(dir / "run", {"train.steps=3"})).code == 0);
  const auto result =
      parse_json_output(run_program({"eval", (dir / "run").string(), "--limit", "20", "--json"}));
  CHECK(result["split"] == "test");
  CHECK(result["examples"] == 20);
  CHECK(result["nats_per_example"] > 0);
  CHECK(result["accuracy"] >= 0);
  CHECK(result["accuracy"] <= 1);
  const auto precise = parse_json_output(
      run_program({"eval", (dir / "run").string(), "--limit", "20", "--dtype", "float64", "--json"}));
  CHECK(precise["nats_per_example"].get<double>() ==
        doctest::Approx(result["nats_per_example"].get<double>()).epsilon(1e-5));
  const ProgramResult generated = run_program({"generate", (dir / "run").string()});
  CHECK(generated.code == 2);
  CHECK(generated.err.find("this is a model of classes") != std::string::npos);
}

TEST_CASE("classification: configs that contradict each other are usage errors") {
  const TempDir dir;
  const auto error_of = [&](const std::vector<std::string>& settings) {
    const ProgramResult result = run_program(training(dir / "run", settings));
    CHECK(result.code == 2);
    return result.err;
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(contains(error_of({"model.type=sequence"}),
                 "data set \"listops\" needs type \"classification\", got \"sequence\""));
  CHECK(contains(error_of({"attention.rank=41"}),
                 "attention.rank: expected at most the maximum length of the sequences, 40, got 41"));
  CHECK(contains(error_of({"data.min_length=41"}), "expected at most max_length = 40, got 41"));
  const ProgramResult causal =
      run_program({"train", (std::filesystem::path(SOURCE_DIR) / "configs/survey/performer.toml").string(),
                   "--run-dir", (dir / "causal").string(), "--set", "model.attention=linformer"});
  CHECK(causal.code == 2);
  CHECK(contains(causal.err,
                 "attention kind \"linformer\" has no causal form: each compressed key also combines"));
}
