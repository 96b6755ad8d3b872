// A whole training step (forward, backward, clipping, optimizer) on random bytes, held against products of
// the step's own matrix shapes, in its precision. Both are measured in turn, so that whatever else the
// machine does slows both.
#include "core/allocator.h"
#include "core/system/machine.h"
#include "train/bench/bench.h"
#include "train/bench/gemm_work.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/build.h"
#include "train/optimizer.h"
#include "train/step_graphs.h"

namespace tapeformer {
namespace {

constexpr int64_t kWarmUp = 2;  // the second step allocates nothing new

Report run_train_step(const CommandLine& line) {
  const auto repeats = line.options.get<int64_t>("repeats");
  const ModelChoice choice = choose_model(line, line.options.get<int64_t>("batch"));
  const Device device = device_of(line);
  set_precision(choice.run, device);
  AutoregressiveModel model(choice.model);
  model.initialize(choice.seed);
  model.move(device);
  Optimizer optimizer(choice.optimizer, model.parameters());
  const int64_t length = choice.model.max_length;
  Batch batch = random_batch(choice.model, choice.batch, choice.seed);
  const bool repeats_steps = !device.is_cpu() && choice.run.cuda_graphs;
  if (repeats_steps) batch.tokens = batch.tokens.to(device);
  StepGraphs graphs(device, 1);
  int64_t number = 0;
  const auto launches = [&] {
    const Tensor loss =
        model.loss(batch, {.training = true, .seed = choice.seed, .step = static_cast<uint64_t>(number)});
    backward(loss);
    return StepOutputs{{detach(loss)}, optimizer.apply()};
  };
  const auto step = [&] {
    optimizer.prepare(choice.optimizer.lr);
    if (repeats_steps)
      graphs.run("", number, launches);
    else
      launches();
    ++number;
  };
  allocator(device).reset_peak();
  for (int64_t i = 0; i < kWarmUp; ++i) step();
  const int64_t peak = allocator(device).stats().peak, resident = peak_resident_bytes();

  const GemmWork products(training_products(choice.model, choice.batch * length), device);
  const double product_flops = total_flops(products.products());
  // Forward, and twice as much for the gradients of both factors of every product.
  const double attention = 3 * attention_flops(choice.model, length) * static_cast<double>(choice.batch);
  const double flops = product_flops + attention;
  products.run();
  std::vector<double> steps, rates, shares;
  for (int64_t i = 0; i < repeats; ++i) {
    steps.push_back(seconds_of(step, device));
    rates.push_back(product_flops / seconds_of([&] { products.run(); }, device));
    shares.push_back(flops / steps.back() / rates.back());
  }
  const double seconds = median(steps);
  return Report()
      .add("device", device.to_string())
      .add("precision", choice.run.precision)
      .add("threads", threads())
      .add("graph", repeats_steps)
      .add("attention", choice.model.encoder.attention)
      .add("parameters", parameter_count(model))
      .add("batch", choice.batch)
      .add("length", length)
      .add("seconds_per_step", seconds)
      .add("fastest_seconds_per_step", *std::min_element(steps.begin(), steps.end()))
      .add("tokens_per_second", static_cast<double>(choice.batch * length) / seconds)
      .add("gflop_per_step", flops / kGiga)
      .add("gflop_of_attention", attention / kGiga)
      .add("gflops", flops / seconds / kGiga)
      .add("sgemm_gflops", median(rates) / kGiga)
      .add("share_of_sgemm", median(shares))
      .add("peak_bytes", peak)
      .add("peak_resident_bytes", resident);
}

}  // namespace

Benchmark train_step_benchmark() {
  std::vector<OptionSpec> options = model_option_specs();
  options.push_back(
      {.name = "batch", .default_value = int64_t{10}, .help = "sequences", .min = 1, .max = 1 << 20});
  options.push_back(
      {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1});
  return {.name = "train-step",
          .summary = "a training step of a model on random bytes: time, share of the sgemm rate, memory",
          .options = options,
          .run = run_train_step,
          .on_devices = true};
}

}  // namespace tapeformer
