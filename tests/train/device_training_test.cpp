// Tests of training on a device. The tests compare losses and errors with training on the CPU, and check
// graph replays, waits for the device, memory, bfloat16 and TF32. The tests of bfloat16 also run on the CPU.
#include <doctest/doctest.h>

#include <cmath>

#include "core/allocator.h"
#include "core/cuda/devices.h"
#include "core/cuda/transfers.h"
#include "core/device_control.h"
#include "tests/models/kinds.h"
#include "tests/support/devices.h"
#include "tests/support/temp_dir.h"
#include "tests/train/tasks/speech/tiny_speech.h"
#include "train/checkpoint/safetensors.h"
#include "train/loop/step_graphs.h"
#include "train/loop/trainer.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kSteps = 20;

Config small_config(const std::string& attention, bool reversible) {
  Config config;
  config.run.threads = 2;
  config.data = {.dataset = "copy", .batch_size = 2, .eval_limit = 4, .options = {{"max_length", 12}}};
  config.model.type = "sequence";
  config.model.attention = {attention};
  config.model.options.set("layers", 2);
  config.model.options.set("heads", 2);
  config.model.options.set("head_dim", 8);
  config.model.options.set("feedforward", 24);
  config.model.options.set("activation", "gelu");
  config.model.options.set("dropout", 0.1);
  config.model.options.set("reversible", reversible);
  config.model.options.set("norm", reversible ? "pre" : "post");
  config.attention = {{attention, test_options(attention)}};
  config.optimizer.lr = 1e-2;
  config.optimizer.ema = 0.9;
  config.train.steps = kSteps;
  config.train.eval_every = kSteps;
  config.train.log_every = 1;
  return config;
}

// Returns whether an attention kind is tested in reversible layers, as in the Reformer.
bool is_used_reversible(const std::string& attention) {
  return find_attention_kind(attention).capabilities.shares_query_key;
}

std::string device_name() {
  if constexpr (kHasCuda)
    return cuda::is_emulated() ? "cuda-emulated" : "cuda";
  else
    return "cpu";
}

struct Outcome {
  std::vector<double> losses;       // losses of all steps and evaluations, in order
  std::vector<double> error_rates;  // phone error rates of speech evaluations
  int64_t replayed = 0;             // steps that replayed a graph
};

Outcome outcome_on(const std::string& device, Config config) {
  const TempDir dir;
  config.run.device = device;
  Trainer trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true});
  trainer.run();
  Outcome outcome;
  if (trainer.graphs()) outcome.replayed = trainer.graphs()->replayed_step_count();
  for (const MetricRecord& record : read_metrics((dir / "run" / "metrics.jsonl").string())) {
    if (const double loss = get_metric_number(record, "loss_nats", -1); loss != -1)
      outcome.losses.push_back(loss);
    if (const double rate = get_metric_number(record, "per", -1); rate != -1)
      outcome.error_rates.push_back(rate);
  }
  return outcome;
}

// Checks that the losses of trainings in bfloat16 and, on CUDA devices, in TF32 are near the losses in
// float32.
void check_precisions(const std::string& device) {
  struct Form {
    const char* attention;
    bool reversible = false, recompute = false;
    int64_t chunks = 1;
    double bfloat16_tolerance = 0.02, tf32_tolerance = 2e-3;  // limits of the relative differences
  };
  // The tolerance for LSH attention is larger, because rounding moves some queries to other buckets.
  constexpr double kLsh = 0.1;
  for (const Form& form :
       {Form{"linear"}, Form{.attention = "softmax", .recompute = true},
        Form{.attention = "lsh", .chunks = 3, .bfloat16_tolerance = kLsh, .tf32_tolerance = kLsh},
        Form{.attention = "lsh", .reversible = true, .bfloat16_tolerance = kLsh, .tf32_tolerance = kLsh}}) {
    CAPTURE(form.attention);
    CAPTURE(form.reversible);
    Config config = small_config(form.attention, form.reversible);
    config.model.options.set("recompute", form.recompute);
    config.model.options.set("feedforward_chunks", form.chunks);
    config.train.steps = config.train.eval_every = 6;
    const std::vector<double> expected = outcome_on(device, config).losses;
    for (const bool tf32 : {false, true}) {
      if (tf32 && device == "cpu") continue;
      CAPTURE(tf32);
      config.run.precision = tf32 ? "float32" : "bfloat16";
      config.run.tf32 = tf32;
      const std::vector<double> found = outcome_on(device, config).losses;
      // A real device can ignore TF32 in products as small as these.
      if (!tf32 || device == "cuda-emulated") CHECK(found != expected);
      REQUIRE(found.size() == expected.size());
      const double tolerance = tf32 ? form.tf32_tolerance : form.bfloat16_tolerance;
      for (size_t i = 0; i < found.size(); ++i)
        CHECK(std::abs(found[i] - expected[i]) < tolerance * expected[i]);
    }
  }
}

Config short_speech_config(const std::filesystem::path& corpus, const std::string& encoder) {
  Config config = make_tiny_speech_config(corpus, encoder);
  config.model.options.set("layers", 2);
  config.train.epochs = 4;
  return config;
}

// Checks the losses of training in bfloat16. `single` contains the losses of the same training in float32.
void check_speech_precision(const std::string& device, Config config, const std::vector<double>& single) {
  config.run.precision = "bfloat16";
  const std::vector<double> rounded = outcome_on(device, config).losses;
  CHECK(rounded != single);
  REQUIRE(rounded.size() == single.size());
  for (size_t i = 0; i < single.size(); ++i) CHECK(std::abs(rounded[i] - single[i]) < 0.05 * single[i]);
}

}  // namespace

TEST_CASE("cuda: 20 steps of training have the same losses as on the CPU") {
  if (list_cuda_devices().empty()) return;
  for (const std::string& attention : causal_kinds()) {
    CAPTURE(attention);
    const Config config = small_config(attention, is_used_reversible(attention));
    const std::vector<double> expected = outcome_on("cpu", config).losses,
                              found = outcome_on(device_name(), config).losses;
    REQUIRE(expected.size() == kSteps + 1);
    REQUIRE(found.size() == expected.size());
    // If training did not change the loss, the comparison below would be trivial.
    CHECK(std::abs(expected.front() - expected[kSteps - 1]) > 0.01);
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(found[i] - expected[i]) < 1e-4 * expected[i]);
    }
  }
}

TEST_CASE("cuda: steps with axial positions can be captured as a graph") {
  if (list_cuda_devices().empty()) return;
  Config config = small_config("linear", false);
  config.model.options.set("positions", "axial");
  config.model.options.set("axial_shape", std::vector<int64_t>{4, get_dataset_info(config).length / 4 + 1});
  config.model.options.set(
      "axial_dims", std::vector<int64_t>{
                        2, config.model.get<int64_t>("heads") * config.model.get<int64_t>("head_dim") - 2});
  const Outcome repeated = outcome_on(device_name(), config);
  CHECK(repeated.replayed > 0);
  config.run.cuda_graphs = false;
  CHECK(repeated.losses == outcome_on(device_name(), config).losses);
}

TEST_CASE("cuda: steps of each optimizer can be captured as a graph") {
  if (list_cuda_devices().empty()) return;
  for (const OptimizerKind& kind : list_optimizer_kinds()) {
    CAPTURE(kind.name);
    Config config = small_config("linear", false);
    config.optimizer.kind = kind.name;
    const Outcome repeated = outcome_on(device_name(), config);
    CHECK(repeated.replayed > 0);
    config.run.cuda_graphs = false;
    CHECK(repeated.losses == outcome_on(device_name(), config).losses);
  }
}

TEST_CASE("cuda: replays of a training step do not shift rotary positions") {
  if (list_cuda_devices().empty()) return;
  for (const std::string rotation : {"inputs", "features"}) {
    Config config = small_config("linear", false);
    config.model.options.set("positions", "rotary");
    config.attention.at("linear").set("rotation", rotation);
    const Outcome repeated = outcome_on(device_name(), config);
    CHECK(repeated.replayed > 0);
    config.run.cuda_graphs = false;
    CHECK(repeated.losses == outcome_on(device_name(), config).losses);
  }
}

TEST_CASE("cuda: 20 steps with graph replays equal 20 launched steps, to the bit") {
  if (list_cuda_devices().empty()) return;
  for (const std::string& attention : causal_kinds())
    for (const int64_t accumulate : {1, 3}) {
      const bool is_first_kind = attention == causal_kinds().front();
      if (accumulate > 1 && !is_first_kind) continue;
      CAPTURE(attention);
      CAPTURE(accumulate);
      Config config = small_config(attention, is_used_reversible(attention));
      config.train.accumulate = accumulate;
      config.train.eval_every = 6;  // evaluations interrupt the replays
      config.optimizer.clip_norm = 1;
      config.schedule.warmup_steps = 10;
      if (find_attention_kind(attention).capabilities.weight_dropout)
        config.model.options.set("attention_dropout", 0.2);
      // Dropout ends after 12 steps. The run with CUDA graphs then captures a second graph, without dropout.
      if (is_first_kind) config.train.dropout_steps = 12;
      config.run.cuda_graphs = false;
      const Outcome expected = outcome_on(device_name(), config);
      config.run.cuda_graphs = true;
      const Outcome found = outcome_on(device_name(), config);
      CHECK(expected.losses.size() > kSteps);
      CHECK(found.losses == expected.losses);
      CHECK(expected.replayed == 0);
      // The first step of each layout runs without a graph, so it is not a replay.
      CHECK(found.replayed == kSteps - (is_first_kind ? 2 : 1));
    }
}

TEST_CASE(
    "cuda: steps of one layout are captured once and then replayed, and a new layout is captured again") {
  for (const Device device : list_cuda_devices()) {
    StepGraphs graphs(device, 2);
    const Tensor sum = Tensor::zeros({}, DType::float64, device);
    const auto work = [&](double amount) {
      return [&sum, amount] {
        const Tensor increment = Tensor::full({}, amount, DType::float64, sum.device());
        sum.add_scaled(increment);
        return StepOutputs{.losses = {sum.clone()}, .loss_terms = {}, .grad_norm = increment};
      };
    };
    // Returns the layout of a step with one batch of `length` tokens.
    const auto layout = [](int64_t length) {
      return StepLayout{.dropout = true, .batches = {{.token_shape = {1, length}, .mask_shape = {}}}};
    };
    for (int64_t step = 0; step < 5; ++step)
      CHECK(graphs.run(layout(1), step, work(1)).losses[0].item() == static_cast<double>(step + 1));
    CHECK(graphs.captured_step_count() == 1);
    CHECK(graphs.replayed_step_count() == 4);
    for (int64_t step = 5; step < 8; ++step) graphs.run(layout(2), step, work(10));
    graphs.run(layout(1), 8, work(1));
    CHECK(sum.item() == 36);
    CHECK(graphs.captured_step_count() == 2);
    // StepGraphs stores at most four layouts. The fifth layout, which has length 5, removes all graphs. The
    // graph of a layout is captured when the layout occurs for the second time, here in the second step of
    // length 1.
    for (const int64_t length : {3, 4, 5, 1, 1}) graphs.run(layout(length), 9, work(100));
    CHECK(sum.item() == 536);
    CHECK(graphs.captured_step_count() == 3);
  }
}

TEST_CASE("cuda: a step of training does not wait for the device") {
  if (list_cuda_devices().empty()) return;
  for (const int64_t chunks : {1, 3}) {
    CAPTURE(chunks);
    const auto waits_of = [&](int64_t steps) {
      Config config = small_config("linear", false);
      config.model.options.set("loss_chunks", chunks);
      config.train.steps = steps;
      config.train.eval_every = 0;
      config.train.log_every = 1000;
      config.optimizer.clip_norm = 1;
      int64_t before = 0, after = 0;
      if constexpr (kHasCuda) before = cuda::host_wait_count();
      outcome_on(device_name(), config);
      if constexpr (kHasCuda) after = cuda::host_wait_count();
      return after - before;
    };
    CHECK(waits_of(12) == waits_of(3));  // the host waits only at the start and at the end of a run
  }
}

TEST_CASE("cuda: the error about a loss that is not finite has the same step and examples as on the CPU") {
  if (list_cuda_devices().empty()) return;
  Config config = small_config("linear", false);
  config.optimizer.kind = "sgd";
  config.optimizer.lr = 1e25;
  config.optimizer.ema = 0;
  config.train.accumulate = 2;
  config.train.checkpoint_every = 1;
  config.train.eval_every = 0;
  config.train.log_every = 1000;
  std::string messages[2];
  for (int i = 0; i < 2; ++i) {
    const TempDir dir;
    config.run.device = i == 0 ? "cpu" : device_name();
    Trainer trainer(config, {.run_dir = dir / "run", .data_dir = "", .resume = false, .quiet = true});
    try {
      trainer.run();
    } catch (const DivergenceError& error) {
      messages[i] = error.what();
    }
    const SafetensorsFile kept((dir / "run/checkpoints/latest/model.safetensors").string());
    for (const auto& [name, entry] : kept.entries())
      for (const double value : kept.read(name).to_vector()) REQUIRE(std::isfinite(value));
  }
  // Removes the loss from the message, because the sign of NaN may differ.
  for (std::string& message : messages) message.erase(0, message.find(" at step"));
  CHECK(messages[0].starts_with(" at step 1, training examples "));
  CHECK(messages[0] == messages[1]);
}

TEST_CASE("cuda: training in bfloat16 and in TF32 stays near float32") {
  if (!list_cuda_devices().empty()) check_precisions(device_name());
}
TEST_CASE("training in bfloat16 on the CPU stays near float32") {
  check_precisions("cpu");
  set_precision(kCpu, Precision::float32);
}

TEST_CASE("cuda: bfloat16 halves the activations of a step, and trainings free all memory") {
  for (const Device device : list_cuda_devices()) {
    const auto used = [&](const std::string& precision, int64_t steps) {
      Config config = small_config("linear", false);
      config.data.batch_size = 4;
      config.data.options.set("max_length", 30);
      config.model.options.set("layers", 4);
      config.run.precision = precision;
      config.train.steps = config.train.eval_every = steps;
      CachingAllocator& memory = get_device_allocator(device);
      const int64_t before = memory.stats().active_bytes;
      memory.reset_peak();
      outcome_on(device_name(), config);
      CHECK(memory.stats().active_bytes == before);
      return memory.stats().peak_bytes - before;
    };
    const int64_t few = used("bfloat16", 3), many = used("bfloat16", 6), single = used("float32", 3);
    CHECK(few == many);
    CHECK(few < 0.85 * static_cast<double>(single));
  }
}

TEST_CASE("cuda: speech models have the same losses and phone error rates as on the CPU") {
  if (list_cuda_devices().empty()) return;
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 6);
  for (const std::string encoder : {"lstm", "transformer"}) {
    CAPTURE(encoder);
    const Config config = short_speech_config(dir / "an4", encoder);
    const Outcome expected = outcome_on("cpu", config), found = outcome_on(device_name(), config);
    REQUIRE(expected.losses.size() > 12);
    REQUIRE(found.losses.size() == expected.losses.size());
    // If training did not reduce the loss, the comparison below would be trivial.
    CHECK(expected.losses.front() - expected.losses.back() > 0.1);
    for (size_t i = 0; i < found.losses.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(found.losses[i] - expected.losses[i]) < 1e-3 * expected.losses[i]);
    }
    CHECK(found.error_rates == expected.error_rates);
    check_speech_precision(device_name(), config, found.losses);
  }
}
TEST_CASE("speech models trained in bfloat16 on the CPU stay near float32") {
  const TempDir dir;
  write_tiny_an4(dir / "an4", 12, 6);
  for (const std::string encoder : {"lstm", "transformer"}) {
    CAPTURE(encoder);
    const Config config = short_speech_config(dir / "an4", encoder);
    check_speech_precision("cpu", config, outcome_on("cpu", config).losses);
  }
  set_precision(kCpu, Precision::float32);
}
