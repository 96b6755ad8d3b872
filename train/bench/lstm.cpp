// Benchmark of a stack of LSTM layers, forward and backward, on random frames.
#include "models/layers/lstm.h"
#include "core/rng.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

Tensor random_frames(const Shape& shape, Device device) {
  const Tensor x = Tensor::empty(shape);
  const RandomStream stream(kSeed, "bench lstm");
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return x.to(device);
}

Report run_lstm(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const int64_t batch = number("batch"), frames = number("frames"), in = number("in");
  LstmStack model({.in = in,
                   .hidden = number("hidden"),
                   .layers = number("layers"),
                   .bidirectional = arguments.options.get<bool>("bidirectional")});
  const Device device = arguments.device;
  model.initialize(kSeed);
  model.move(device);
  const Tensor x = random_frames({batch, frames, in}, device);
  const Tensor cotangent = random_frames({batch, frames, model.options().output_width()}, device);
  const double both = median_seconds(
      number("repeats"),
      [&] {
        for (const auto& [name, parameter] : model.parameters()) set_gradient(parameter, {});
        backward(model.forward(x, {}, {}), cotangent);
      },
      device);
  const double forward = median_seconds(
      number("repeats"),
      [&] {
        const NoGrad no_grad;
        model.forward(x, {}, {});
      },
      device);
  // Operations of the forward products. Biases are neglected.
  double weights = 0;
  for (const auto& [name, parameter] : model.parameters())
    if (parameter.rank() == 2) weights += static_cast<double>(parameter.numel());
  const double flops = 2 * weights * static_cast<double>(batch * frames);
  return Report()
      .add("device", device.to_string())
      .add("threads", threads())
      .add("parameters", parameter_count(model))
      .add("milliseconds", 1e3 * both)
      .add("milliseconds_forward", 1e3 * forward)
      .add("frames_per_second", static_cast<double>(batch * frames) / both)
      .add("gflops_forward", flops / forward / kGiga);
}

}  // namespace

Benchmark lstm_benchmark() {
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
           {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}},
      .run = run_lstm,
      .on_devices = true};
}

}  // namespace tapeformer
