#include "train/checkpoint/initial_weights.h"

#include <doctest/doctest.h>

#include <algorithm>

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
  CHECK(std::count(text.begin(), text.end(), ',') < 8);
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
