// A benchmark of the CTC loss, with and without its gradient, on random logits and labels.
#include "core/random/rng.h"
#include "ops/ctc_loss.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

Tensor make_random_logits(int64_t batch, int64_t frames, int64_t classes) {
  const Tensor logits = Tensor::empty({batch, frames, classes});
  const RandomStream stream(kInputSeed, "bench ctc logits");
  for (int64_t i = 0; i < logits.numel(); ++i)
    logits.data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return logits;
}

Tensor make_random_labels(int64_t batch, int64_t labels, int64_t classes) {
  const Tensor result = Tensor::empty({batch, labels}, DType::int64);
  const RandomStream stream(kInputSeed, "bench ctc labels");
  for (int64_t i = 0; i < result.numel(); ++i)
    result.data<int64_t>()[i] = 1 + static_cast<int64_t>(stream.uniform_below(
                                        static_cast<uint64_t>(i), static_cast<uint64_t>(classes - 1)));
  return result;
}

Report run_ctc(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const int64_t batch = number("batch"), frames = number("frames"), classes = number("classes"),
                labels = number("labels");
  // An alignment needs at most two frames per label: one for the label, and one for a blank between equal
  // labels.
  if (labels > frames / 2) throw ConfigError("--labels must be at most half of --frames");
  const Tensor logits = set_requires_grad(make_random_logits(batch, frames, classes));
  const Tensor targets = make_random_labels(batch, labels, classes);
  const Tensor frame_counts = Tensor::full({batch}, static_cast<double>(frames), DType::int64);
  const Tensor label_counts = Tensor::full({batch}, static_cast<double>(labels), DType::int64);
  const auto loss = [&] { return ctc_loss(logits, frame_counts, targets, label_counts).loss; };
  const double both = measure_median_call_seconds(number("repeats"), [&] {
    backward(loss());
    set_gradient(logits, {});
  });
  const double forward = measure_median_call_seconds(number("repeats"), [&] {
    const NoGradScope no_grad;
    loss();
  });
  return Report()
      .add("threads", get_thread_count())
      .add("batch", batch)
      .add("frames", frames)
      .add("classes", classes)
      .add("labels", labels)
      .add("loss", loss().item())
      .add("milliseconds", 1e3 * both)
      .add("milliseconds_forward", 1e3 * forward);
}

}  // namespace

Benchmark make_ctc_benchmark() {
  return {.name = "ctc",
          .summary = "CTC loss with and without its gradient",
          .options =
              {{.name = "batch", .default_value = int64_t{16}, .help = "utterances", .min = 1, .max = 4096},
               {.name = "frames",
                .default_value = int64_t{800},
                .help = "frames per utterance",
                .min = 1,
                .max = 1 << 20},
               {.name = "classes",
                .default_value = int64_t{40},
                .help = "classes, including the blank",
                .min = 2,
                .max = 1 << 16},
               {.name = "labels", .default_value = int64_t{100}, .help = "labels per utterance", .min = 0},
               {.name = "repeats", .default_value = int64_t{15}, .help = "repeats for the median", .min = 1}},
          .run = run_ctc};
}

}  // namespace tapeformer
