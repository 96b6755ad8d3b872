// Tests of runs with adapters ([lora] in a config).
#include <doctest/doctest.h>

#include "models/layers/low_rank.h"
#include "tests/support/message_log.h"
#include "tests/support/temp_dir.h"
#include "tests/train/exact_resume.h"
#include "train/tasks/autoregressive.h"
#include "train/tasks/registry/load_task.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

Config make_base_config() {
  Config config = make_tiny_sequence_config();
  config.data.eval_limit = 4;
  config.model.options.set("layers", 2);
  config.train.steps = 2;
  return config;
}

// Returns the config of a run whose adapters extend the run `base`.
Config make_config(const fs::path& base) {
  Config config = make_base_config();
  config.model.init = base.string();
  config.lora = {.rank = 3, .alpha = 6, .targets = {"*.query_projection", "*.linear2"}, .dropout = 0.2};
  config.optimizer = {.kind = "adamw", .lr = 1e-2, .weight_decay = 0.1, .ema = 0.5};
  config.train.steps = 4;
  return config;
}

Values load_merged_weights(const fs::path& run) {
  Values values;
  for (const auto& [name, tensor] : load_task({.path = run.string()}).task->model().saved_tensors())
    values[name] = tensor.to_vector();
  return values;
}

double evaluate(const fs::path& run) {
  const LoadedTask loaded = load_task({.path = run.string()});
  return loaded.task->open_evaluation({})->evaluate().selection_metric;
}

template <class Error>
std::string find_error(const Config& config) {
  const TempDir dir;
  try {
    train(config, dir / "run");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

template <class Error>
std::string find_load_error(const fs::path& run) {
  try {
    load_task({.path = run.string()});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a run with adapters trains and stores only them, and commands load them merged into the base") {
  const TempDir dir;
  train(make_base_config(), dir / "base");
  const Values base = load_merged_weights(dir / "base");
  Config config = make_config(dir / "base");
  const TrainResult result = train(config, dir / "run");
  const CheckpointContents contents = read_checkpoint_contents(dir / "run");
  CHECK(contents.model_tensors.size() == 8);
  for (const auto& [name, tensor] : contents.model_tensors) CHECK_MESSAGE(is_adapter_tensor(name), name);
  for (const auto& [name, tensor] : contents.optimizer_tensors) CHECK_MESSAGE(is_adapter_tensor(name), name);
  CHECK(load_merged_weights(dir / "base") == base);
  const Values merged = load_merged_weights(dir / "run");
  REQUIRE(merged.size() == base.size());
  for (const auto& [name, values] : merged) {
    const bool is_target = name.ends_with("query_projection.weight") || name.ends_with("linear2.weight");
    CHECK_MESSAGE((values == base.at(name)) == !is_target, name);
  }
  // The evaluation of the training computes the adapters beside the weights.
  CHECK(evaluate(dir / "run") == doctest::Approx(result.evaluation->selection_metric).epsilon(1e-5));
  CHECK(evaluate(dir / "run") != doctest::Approx(evaluate(dir / "base")).epsilon(1e-5));

  config.optimizer.lr = 0;
  train(config, dir / "unchanged");
  CHECK(load_merged_weights(dir / "unchanged") == base);
  CHECK(evaluate(dir / "unchanged") == evaluate(dir / "base"));
}

TEST_CASE("a resumed run with adapters equals an uninterrupted run") {
  const TempDir dir;
  train(make_base_config(), dir / "base");
  check_exact_resume(make_config(dir / "base"), dir.path());
}

TEST_CASE("the base of adapters is found where it was, or at the same place relative to the run") {
  const TempDir dir;
  train(make_base_config(), dir / "first/base");
  train(make_config(dir / "first/base"), dir / "first/runs/run");
  const Values merged = load_merged_weights(dir / "first/runs/run");
  fs::rename(dir / "first", dir / "second");
  CHECK(load_merged_weights(dir / "second/runs/run") == merged);
  CHECK_NOTHROW(train(make_config(dir / "first/base"), dir / "second/runs/run", true));
  fs::rename(dir / "second/base", dir / "second/other");
  const std::string missing = find_load_error<CheckpointError>(dir / "second/runs/run");
  CHECK_MESSAGE(missing.find("first/base/checkpoints/step-00000002, which is neither there nor in ") !=
                    std::string::npos,
                missing);
  Config changed = make_base_config();
  changed.run.seed = 9;
  train(changed, dir / "second/base");
  const std::string other = find_load_error<CheckpointError>(dir / "second/runs/run");
  CHECK_MESSAGE(other.find("the adapters extend other weights than those in ") != std::string::npos, other);
}

TEST_CASE("unusable settings of adapters are errors") {
  const TempDir dir;
  train(make_base_config(), dir / "base");
  Config config = make_config(dir / "base");
  config.lora.targets = {"*.query_projections"};
  CHECK(find_error<ConfigError>(config).starts_with(
      "lora.targets: \"*.query_projections\" matches no linear layer of an encoder; the nearest names are "
      "layers.0.attention.query_projection, layers.1.attention.query_projection, "));
  config.lora.targets = {};
  CHECK(find_error<ConfigError>(config) == "lora.targets: expected at least one pattern");
  config = make_config(dir / "base");
  train(config, dir / "run");
  config.model.init = (dir / "run").string();
  const std::string text = find_error<ConfigError>(config);
  CHECK_MESSAGE(text.find("the run has adapters") != std::string::npos, text);
}

TEST_CASE("train.freeze can freeze a part of the adapters") {
  const TempDir dir;
  train(make_base_config(), dir / "base");
  Config config = make_config(dir / "base");
  config.train.freeze = {"*.lora_A.weight"};
  config.train.checkpoint_every = 1;
  config.train.keep_last = 4;
  train(config, dir / "run");
  const Values first =
                   to_values(read_checkpoint_contents(dir / "run/checkpoints/step-00000001").model_tensors),
               last = to_values(read_checkpoint_contents(dir / "run").model_tensors);
  CHECK(last.size() == 8);
  for (const auto& [name, values] : last)
    CHECK_MESSAGE((values == first.at(name)) == name.ends_with("lora_A.weight"), name);
}
