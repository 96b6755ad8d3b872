// Whole trainings on a device against the same on the CPU: losses of every step, and the evaluation at the
// end.
#include <doctest/doctest.h>

#include <cmath>

#include "core/cuda/backend.h"
#include "tests/support/devices.h"
#include "tests/support/temp_dir.h"
#include "train/trainer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kSteps = 20;

Config small_config(const std::string& attention, bool reversible) {
  Config config;
  config.run.threads = 2;
  config.data = {.dataset = "copy", .batch_size = 2, .eval_limit = 4, .max_length = 12};
  config.model.type = "sequence";
  config.model.attention = attention;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.head_dim = 8;
  config.model.feedforward = 24;
  config.model.activation = "gelu";
  config.model.dropout = 0.1;
  config.model.reversible = reversible;
  config.model.norm = reversible ? "pre" : "post";
  config.attention = OptionValues(attention_kind(attention).options);
  if (attention == "lsh") config.attention.set("chunk_length", int64_t{4});
  config.optimizer.lr = 1e-2;
  config.optimizer.ema = 0.9;
  config.train.steps = kSteps;
  config.train.eval_every = kSteps;
  config.train.log_every = 1;
  return config;
}

std::string device_name() {
  if constexpr (kHasCuda)
    return cuda::emulated() ? "cuda-emulated" : "cuda";
  else
    return "cpu";
}

std::vector<double> losses_on(const std::string& device, Config config) {
  const TempDir dir;
  config.run.device = device;
  Trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true}).run();
  std::vector<double> losses;
  for (const MetricRecord& record : read_metrics((dir / "run" / "metrics.jsonl").string()))
    losses.push_back(metric_number(record, "loss_nats", NAN));
  return losses;
}

}  // namespace

TEST_CASE("cuda: 20 steps of training have the losses of the CPU") {
  if (other_devices().empty()) {
    MESSAGE("skipped: " << why_no_device());
    return;
  }
  for (const std::string attention : {"linear", "softmax", "lsh"}) {
    CAPTURE(attention);
    const Config config = small_config(attention, attention == "lsh");
    const std::vector<double> expected = losses_on("cpu", config), found = losses_on(device_name(), config);
    REQUIRE(expected.size() == kSteps + 1);
    REQUIRE(found.size() == expected.size());
    CHECK(std::abs(expected.front() - expected[kSteps - 1]) > 0.01);  // the weights move
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(found[i] - expected[i]) < 1e-4 * expected[i]);
    }
  }
}
