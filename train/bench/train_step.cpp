// A benchmark of a training step (forward, backward, clipping, optimizer) on random bytes. The time of the
// step is compared with the time of matrix products of the same shapes and precision, and with the memory
// bandwidth. Training steps, matrix products and memory copies alternate, so that other load on the machine
// affects all measurements.
#include "core/allocator.h"
#include "core/system/machine.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/bench/roofline.h"
#include "train/bench/training_step.h"
#include "train/build.h"

namespace tapeformer {
namespace {

// The number of untimed steps at the start. These steps allocate the memory that later steps reuse.
constexpr int64_t kWarmUp = 2;

// Returns the operations and bytes of a training step. The number of bytes is a lower bound, which assumes
// that each kernel reads its inputs from memory once and writes its results once, and that elementwise
// kernels are fused.
// - list_training_gemms() lists the matrix products. Operands and results of the matrix products have the
//   dtype get_operand_dtype(device).
// - The forward pass of attention reads q, k and v, and writes the result. The backward pass reads q, k, v,
//   the result and the gradient of the result, and writes the gradients of q, k and v. Each tensor has the
//   shape (batch, length, width) and the dtype get_operand_dtype(device).
// - A layer has two residual branches in float32. The forward pass reads the input and the output of a
//   branch, and writes their sum. The backward pass reads the sum and the gradient of the sum, and writes the
//   gradient of the input.
// - The optimizer uses float32. For each weight, the optimizer reads the weight, its gradient and two
//   moments, and writes the weight and the moments.
WorkCounts count_step_work(const BenchmarkedModel& choice, double attention_flops, int64_t parameters,
                           Device device) {
  constexpr double kAttentionTensors = 4 + 8, kStreamTensors = 2 * (3 + 3), kOptimizerTensors = 4 + 3;
  const EncoderOptions& encoder = choice.model.encoder;
  const int64_t tokens = choice.batch_size * choice.model.max_length;
  const auto products = list_training_gemms(choice.model, tokens);
  const auto stored = static_cast<double>(size_of(get_operand_dtype(device)));
  const double layer_elements = static_cast<double>(tokens * encoder.width() * encoder.layers);
  const double bytes =
      stored * (sum_elements(products) + kAttentionTensors * layer_elements) +
      sizeof(float) * (kStreamTensors * layer_elements + kOptimizerTensors * static_cast<double>(parameters));
  return {sum_flops(products) + attention_flops, bytes};
}

Report run_train_step(const BenchmarkArguments& arguments) {
  const auto repeats = arguments.options.get<int64_t>("repeats");
  const BenchmarkedModel choice = choose_model(arguments, arguments.options.get<int64_t>("batch"));
  const Device device = arguments.device;
  const int64_t length = choice.model.max_length;
  apply_precision(choice.run, device);
  TrainingStep step(choice, device);
  get_device_allocator(device).reset_peak();
  for (int64_t i = 0; i < kWarmUp; ++i) step.run();
  const int64_t peak = get_device_allocator(device).stats().peak_bytes, resident = get_peak_resident_bytes();
  const int64_t before = get_device_allocator(device).stats().active_bytes;
  get_device_allocator(device).reset_peak();
  step.run();
  const int64_t added = get_device_allocator(device).stats().peak_bytes - before;

  // The backward pass computes two matrix products for each matrix product of the forward pass.
  const double in_attention =
      3 * count_attention_flops(choice.model, length) * static_cast<double>(choice.batch_size);
  const WorkCounts work = count_step_work(choice, in_attention, count_parameters(step.model()), device);
  const DeviceRateProbe probe(list_training_gemms(choice.model, choice.batch_size * length), device);
  std::vector<double> times;
  std::vector<DeviceRates> rates;
  for (int64_t i = 0; i < repeats; ++i) {
    times.push_back(measure_call_seconds([&] { step.run(); }, device));
    rates.push_back(probe.measure_rates());
  }
  const double seconds = compute_median(times);
  Report report;
  report.add("device", device.to_string())
      .add("precision", choice.run.precision)
      .add("threads", get_thread_count())
      .add("graph", step.uses_graph())
      .add("attention", join_kind_names(choice.model.encoder.attention))
      .add("parameters", count_parameters(step.model()))
      .add("batch", choice.batch_size)
      .add("length", length)
      .add("seconds_per_step", seconds)
      .add("fastest_seconds_per_step", *std::min_element(times.begin(), times.end()))
      .add("tokens_per_second", static_cast<double>(choice.batch_size * length) / seconds)
      .add("gflop_per_step", work.flop_count / kGiga)
      .add("gflop_of_attention", in_attention / kGiga);
  add_roofline_comparison(report, work, times, rates);
  return report.add("peak_bytes", peak).add("added_bytes", added).add("peak_resident_bytes", resident);
}

}  // namespace

Benchmark make_train_step_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  options.push_back(make_batch_option("sequences"));
  options.push_back(
      {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1});
  return {.name = "train-step",
          .summary =
              "a training step of a model on random bytes: time, shares of the matrix rate and the memory "
              "bandwidth, memory",
          .options = options,
          .run = run_train_step,
          .accepts_device_option = true};
}

}  // namespace tapeformer
