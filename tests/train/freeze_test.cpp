// Tests of trainings in which some tensors are frozen.
#include <doctest/doctest.h>

#include <set>

#include "tests/support/temp_dir.h"
#include "tests/train/exact_resume.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

Config make_config(const std::vector<std::string>& freeze) {
  Config config = make_tiny_sequence_config();
  config.data.eval_limit = 4;
  config.model.options.set("layers", 3);
  config.model.options.set("dropout", 0.1);
  config.optimizer = {.kind = "adamw", .lr = 1e-2, .weight_decay = 0.1, .clip_norm = 0.5, .ema = 0.5};
  config.train.steps = 4;
  config.train.freeze = freeze;
  return config;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the text of the ConfigError of a training.
std::string find_error(const Config& config) {
  const TempDir dir;
  try {
    train(config, dir / "run");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("frozen tensors keep their bits and have no optimizer state, and all others change") {
  const auto is_frozen = [](const std::string& name) {
    return has(name, "layers.0.") || name == "value_embedding.weight" ||
           name.ends_with("key_projection.bias");
  };
  std::map<std::string, Config> configs;
  const Config plain = make_config({"layers.0.*", "value_embedding.weight", "*key_projection.bias"});
  for (const char* form : {"plain", "per tensor", "reversible", "recomputed", "chunked"})
    configs[form] = plain;
  configs["per tensor"].optimizer.clip = "per_tensor";
  configs["reversible"].model.options.set("reversible", true);
  configs["reversible"].model.options.set("norm", "pre");
  configs["recomputed"].model.options.set("recompute", true);
  configs["chunked"].model.options.set("feedforward_chunks", 2);
  configs["chunked"].model.options.set("loss_chunks", 3);
  for (const auto& [form_name, config] : configs) {
    const std::string& form = form_name;  // clang 14 cannot capture a structured binding
    CAPTURE(form);
    const TempDir dir;
    write_run(dir / "first", config);
    Config tuned = config;
    tuned.model.init = (dir / "first").string();
    train(tuned, dir / "run");
    const CheckpointContents contents = read_checkpoint_contents(dir / "run");
    const Values before = read_weights(dir / "first"), after = to_values(contents.model_tensors);
    REQUIRE(before.size() == after.size());
    for (const auto& [bound_name, values] : after) {
      const std::string& name = bound_name;
      CAPTURE(name);
      CHECK((before.at(name) == values) == is_frozen(name));
    }
    for (const auto& [name, tensor] : contents.optimizer_tensors) CHECK_FALSE(is_frozen(name));
    CHECK_FALSE(contents.optimizer_tensors.empty());
  }
}

TEST_CASE("a resumed run with frozen tensors equals an uninterrupted run") {
  const TempDir dir;
  Config config = make_config({"layers.1.*", "predictor.*"});
  check_exact_resume(config, dir.path());
  config.train.freeze = {};
  CHECK_THROWS_WITH_AS(train(config, dir / "parts", true), doctest::Contains("train.freeze"),
                       RunDirectoryError);
}

TEST_CASE("a frozen state is not updated, and the states of other layers are") {
  const TempDir dir;
  Config config = make_config({"layers.0.attention.inner_attention.centroids"});
  config.model.attention = {"routing"};
  config.attention = {{"routing", find_attention_kind("routing").default_options()}};
  config.optimizer.ema = 0;
  write_run(dir / "unused", config);
  const auto model = make_model(config, get_dataset_info(config));
  Trainer trainer(config, {.run_dir = dir / "run", .data_dir = "", .quiet = true});
  Values before;
  for (const auto& [name, tensor] : trainer.model().saved_tensors()) before[name] = tensor.to_vector();
  trainer.run();
  const Values after = read_weights(dir / "run");
  const std::string end = ".attention.inner_attention.centroids";
  CHECK(after.at("layers.0" + end) == before.at("layers.0" + end));
  CHECK(after.at("layers.1" + end) != before.at("layers.1" + end));
}

TEST_CASE("a pattern that freezes nothing, and a run without a trained parameter, are errors") {
  CHECK(find_error(make_config({"layers.*.linear1.*", "norms.*"})) ==
        "train.freeze: \"norms.*\" matches no tensor of the model; the nearest names are norm.weight, "
        "norm.bias, layers.0.attention.query_projection.weight");
  CHECK(find_error(make_config({"*"})) ==
        "train.freeze: expected at least one parameter to train, but all are frozen");
}
