// A benchmark of the forward and backward pass of a stack of LSTM layers on random frames. The measurements
// of the stack, of matrix products of the same shapes and of memory copies alternate, so that other load on
// the machine slows all measurements equally.
#include "models/layers/lstm.h"
#include "core/random/rng.h"
#include "core/system/machine.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/bench/roofline.h"

namespace tapeformer {
namespace {

Tensor make_random_frames(const Shape& shape, Device device) {
  const Tensor x = Tensor::empty(shape);
  const RandomStream stream(kInputSeed, "bench lstm");
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return x.to(device);
}

// Returns the shapes of three products for each weight matrix, where `dy` is the gradient of y:
//   y = x weightᵀ
//   dx = dy weight
//   dweight = dyᵀ x
// `rows` is the number of frames, and so the number of rows of x and y. Each direction of a layer has two
// weight matrices.
std::vector<GemmShape> list_training_gemms(const LstmStack& model, int64_t rows) {
  std::vector<GemmShape> products;
  for (const auto& [name, weight] : model.parameters()) {
    if (weight.rank() != 2) continue;
    const int64_t out = weight.size(0), in = weight.size(1);
    products.push_back({name, rows, out, in, false, true, 1});
    products.push_back({name + ", dx", rows, in, out, false, false, 1});
    products.push_back({name + ", dweight", out, in, rows, true, false, 1});
  }
  return products;
}

// Returns the operations and bytes of one forward and backward pass. The number of bytes is a lower bound
// that assumes that each pass reads the weights only once. A direction of a layer has `hidden` cells and four
// gates per cell.
// - Forward reads the input and writes the gates, the cells and the output.
// - Backward reads the gates, the cells and the gradient of the output, and writes the gradients of the
//   gates.
// - The matrix products of backward read the gradients of the gates twice, read the input and the output
//   once, and write the gradient of the input.
// - Backward writes the gradients of the weights in float32.
WorkCounts count_training_work(const LstmStack& model, int64_t rows, DType stored) {
  const LstmOptions& options = model.options();
  const auto hidden = static_cast<double>(options.hidden);
  double frame = 0, weights = 0;
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    const auto in = static_cast<double>(layer == 0 ? options.input_width : options.output_width());
    const double forward = in + 4 * hidden + hidden + hidden;
    const double backward = hidden + 4 * hidden + hidden + 4 * hidden;
    const double products = 2 * 4 * hidden + in + hidden + in;
    frame += static_cast<double>(model.layers[layer].size()) * (forward + backward + products);
  }
  for (const auto& [name, parameter] : model.parameters()) weights += static_cast<double>(parameter.numel());
  const auto size = static_cast<double>(size_of(stored));
  return {sum_flops(list_training_gemms(model, rows)),
          size * (frame * static_cast<double>(rows) + 2 * weights) + sizeof(float) * weights};
}

Report run_lstm(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const int64_t batch = number("batch"), frames = number("frames"), in = number("in");
  LstmStack model({.input_width = in,
                   .hidden = number("hidden"),
                   .layers = number("layers"),
                   .bidirectional = arguments.options.get<bool>("bidirectional")});
  const Device device = arguments.device;
  RunConfig run;
  run.precision = arguments.options.get<std::string>("precision");
  apply_precision(run, device);
  model.initialize(kInputSeed);
  model.move(device);
  const Tensor x = make_random_frames({batch, frames, in}, device);
  const Tensor cotangent = make_random_frames({batch, frames, model.options().output_width()}, device);
  const auto train = [&] {
    for (const auto& [name, parameter] : model.parameters()) set_gradient(parameter, {});
    backward(model.forward(x, {}, {}), cotangent);
  };
  train();
  const int64_t resident = get_peak_resident_bytes();
  const DeviceRateProbe probe(list_training_gemms(model, batch * frames), device);
  std::vector<double> both;
  std::vector<DeviceRates> rates;
  for (int64_t i = 0; i < number("repeats"); ++i) {
    both.push_back(measure_call_seconds(train, device));
    rates.push_back(probe.measure_rates());
  }
  const double forward = measure_median_call_seconds(
      number("repeats"),
      [&] {
        const NoGradScope no_grad;
        model.forward(x, {}, {});
      },
      device);
  const WorkCounts work = count_training_work(model, batch * frames, get_operand_dtype(device));
  constexpr double kForwardShare = 1.0 / 3;  // the forward pass does one third of the operations
  Report report;
  report.add("device", device.to_string())
      .add("precision", run.precision)
      .add("threads", get_thread_count())
      .add("parameters", count_parameters(model))
      .add("milliseconds", 1e3 * compute_median(both))
      .add("milliseconds_forward", 1e3 * forward)
      .add("frames_per_second", static_cast<double>(batch * frames) / compute_median(both))
      .add("gflops_forward", kForwardShare * work.flop_count / forward / kGiga);
  add_roofline_comparison(report, work, both, rates);
  return report.add("peak_resident_bytes", resident);
}

}  // namespace

Benchmark make_lstm_benchmark() {
  return {
      .name = "lstm",
      .summary = "a stack of LSTM layers, forward and backward, and forward alone",
      .options =
          {{.name = "batch", .default_value = int64_t{16}, .help = "sequences", .min = 1, .max = 4096},
           {.name = "frames",
            .default_value = int64_t{800},
            .help = "frames per sequence",
            .min = 1,
            .max = 1 << 20},
           {.name = "in", .default_value = int64_t{40}, .help = "features per frame", .min = 1, .max = 65536},
           {.name = "hidden",
            .default_value = int64_t{320},
            .help = "cells per layer and direction",
            .min = 1,
            .max = 65536},
           {.name = "layers", .default_value = int64_t{3}, .help = "layers", .min = 1, .max = 1024},
           {.name = "bidirectional", .default_value = true, .help = "run each layer in both directions"},
           make_precision_option("float32", "precision of the products and of stored activations"),
           {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}},
      .run = run_lstm,
      .accepts_device_option = true};
}

}  // namespace tapeformer
