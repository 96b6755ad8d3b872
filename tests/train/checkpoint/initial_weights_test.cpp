#include "train/checkpoint/initial_weights.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/message_log.h"
#include "tests/support/temp_dir.h"
#include "tests/train/cli/tiny_run.h"
#include "tests/train/quiet_training.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

std::string init_error_of(const std::string& init, Config config) {
  config.model.init = init;
  const auto model = make_model(config, get_dataset_info(config));
  try {
    load_initial_weights(config, *model);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::map<std::string, std::vector<double>> weights_of(const fs::path& run) {
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, tensor] : read_checkpoint_contents(run).model_tensors)
    weights[name] = tensor.to_vector();
  return weights;
}

}  // namespace

TEST_CASE("a run with model.init starts from the weights of another run, and training changes them") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  config.data.eval_limit = 4;
  config.optimizer.ema = 0.9;  // the average of the weights also starts from model.init
  write_run(dir / "first", config);
  const auto before = weights_of(dir / "first");

  config.run.seed = 99;
  config.model.init = (dir / "first").string();
  config.optimizer.lr = 0;
  train(config, dir / "frozen");
  CHECK(weights_of(dir / "frozen") == before);

  config.optimizer.lr = 1e-3;
  train(config, dir / "tuned");
  CHECK(weights_of(dir / "tuned") != before);

  // A resumed run does not read model.init again.
  fs::remove_all(dir / "first");
  CHECK_NOTHROW(train(config, dir / "tuned", true));
  CHECK_THROWS_AS(train(config, dir / "new"), ConfigError);
}

TEST_CASE("errors about model.init name missing and unexpected parameters and mismatched shapes") {
  const TempDir dir;
  const Config config = make_tiny_sequence_config();
  write_run(dir / "run", config);
  CHECK(init_error_of((dir / "run").string(), config) == "");
  CHECK(init_error_of((dir / "run/checkpoints/latest").string(), config) == "");

  Config other = config;
  other.model.options.set("layers", 2);
  std::string text = init_error_of((dir / "run").string(), other);
  CHECK(text.find("model.init: ") == 0);
  CHECK(text.find("missing") != std::string::npos);
  CHECK(text.find("layers.1.") != std::string::npos);
  const std::string list = text.substr(0, text.find('\n'));  // the settings are on the next line
  CHECK(std::count(list.begin(), list.end(), ',') < 8);
  CHECK(text.find(" more") != std::string::npos);

  write_run(dir / "deep", other);
  other = config;
  other.model.options.set("feedforward", 32);
  text = init_error_of((dir / "deep").string(), other);
  CHECK(text.find("not expected") != std::string::npos);
  CHECK(text.find("layers.0.linear1.weight (expected (32, 16) float32, found (16, 16) float32)") !=
        std::string::npos);

  CHECK(init_error_of((dir / "nowhere").string(), config).find("model.init: ") == 0);
}

TEST_CASE("model.init_new and model.init_unused permit tensors that the run and model.init do not share") {
  const TempDir dir;
  Config first = make_tiny_sequence_config();
  first.model.options.set("layers", 2);
  write_run(dir / "first", first);
  Config config = first;
  config.run.seed = 99;
  config.model.options.set("layers", 1);
  config.model.options.set("feedforward", 32);
  const std::string error = init_error_of((dir / "first").string(), config);
  CHECK_MESSAGE(
      error.find("\n  model.init_new = [\"layers.*.linear1.weight\", \"layers.*.linear1.bias\", "
                 "\"layers.*.linear2.weight\"] starts tensors of the model anew") != std::string::npos,
      error);
  CHECK_MESSAGE(error.find("\n  model.init_unused = [\"layers.*.attention.key_projection.bias\", ") !=
                    std::string::npos,
                error);

  config.model.init_new = {"layers.*.linear?.weight", "layers.*.linear1.bias", "predictor.bias"};
  config.model.init_unused = {"layers.1.*"};
  CHECK(init_error_of((dir / "first").string(), config) == "");
  config.model.init = (dir / "first").string();
  const auto model = make_model(config, get_dataset_info(config));
  std::map<std::string, std::vector<double>> random;
  for (const auto& [name, tensor] : model->saved_tensors()) random[name] = tensor.to_vector();
  const MessageLog log;
  load_initial_weights(config, *model);
  CHECK_MESSAGE(log.text().find("17 tensors copied, 4 new (layers.*.linear1.weight, layers.*.linear1.bias, "
                                "layers.*.linear2.weight, predictor.bias), 20 unused (") != std::string::npos,
                log.text());
  const auto earlier = weights_of(dir / "first");
  for (const auto& [bound_name, tensor] : model->saved_tensors()) {
    const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
    CAPTURE(name);
    if (name.find("norm") != std::string::npos) continue;  // the initial values are 0 and 1
    const bool is_new = name == "predictor.bias" || name.find("linear") != std::string::npos;
    CHECK((tensor.to_vector() == random.at(name)) ==
          (is_new && name.find("linear2.bias") == std::string::npos));
    if (tensor.to_vector() != random.at(name)) CHECK(tensor.to_vector() == earlier.at(name));
  }
}

TEST_CASE("patterns of model.init that match nothing are errors with the nearest names") {
  const TempDir dir;
  Config config = make_tiny_sequence_config();
  write_run(dir / "run", config);
  config.model.init_new = {"predictors.*"};
  CHECK(init_error_of((dir / "run").string(), config)
            .starts_with(
                "model.init_new: \"predictors.*\" matches no tensor of the model; the nearest names are "
                "predictor.weight, predictor.bias, "));
  config.model.init_new = {};
  config.model.init_unused = {"predictor.*"};
  CHECK(init_error_of((dir / "run").string(), config) ==
        "model.init_unused: \"predictor.*\" matches no tensor of the checkpoint that the model does not get");
}
