// A benchmark of LSH attention, forward and backward, at doubling lengths. Reports the time and
// the memory per token.
#include <map>

#include "core/allocator.h"
#include "models/attention/attention.h"
#include "ops/lsh_attention.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/attention_lengths.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

// The inputs of LSH attention at one length, and the measurements with these inputs.
class LshMeasurement {
 public:
  LshMeasurement(const BenchmarkArguments& arguments, int64_t length)
      : length_(length),
        initial_bytes_(get_device_allocator().stats().active_bytes),
        shape_{arguments.options.get<int64_t>("batch"), length, arguments.options.get<int64_t>("heads"),
               arguments.options.get<int64_t>("head-dim")},
        q_(make_random_tensor(shape_, "q")),
        v_(make_random_tensor(shape_, "v")),
        cotangent_(Tensor::full(shape_, 1)) {}

  // Runs one forward and backward pass, including the hashing.
  void run(const Attention& attention) const {
    backward(attention.forward(q_, q_, v_, {.causal = true, .key_lengths = {}}, {}, "bench"), cotangent_);
    for (const Tensor& x : {q_, v_}) set_gradient(x, {});
  }
  void time(const Attention& attention) {
    const int64_t inner = std::max<int64_t>(kTokensPerMeasurement / (shape_[0] * length_), 1);
    const double seconds = measure_call_seconds([&] {
      for (int64_t i = 0; i < inner; ++i) run(attention);
    });
    seconds_.push_back(seconds / static_cast<double>(inner));
  }
  void measure_peak(const Attention& attention) {
    get_device_allocator().reset_peak();
    run(attention);
    peak_ = get_device_allocator().stats().peak_bytes - initial_bytes_;
  }

  int64_t length() const { return length_; }
  double per_token() const { return compute_median(seconds_) / static_cast<double>(shape_[0] * length_); }
  Report report() const {
    return Report()
        .add("length", length_)
        .add("seconds", compute_median(seconds_))
        .add("microseconds_per_token", kMicrosecondsPerSecond * per_token())
        .add("peak_bytes", peak_)
        .add("bytes_per_token", peak_ / (shape_[0] * length_));
  }

 private:
  int64_t length_, initial_bytes_;
  Shape shape_;
  Tensor q_, v_, cotangent_;
  std::vector<double> seconds_;
  int64_t peak_ = 0;
};

std::unique_ptr<Attention> make_attention(const BenchmarkArguments& arguments) {
  const AttentionKind& kind = find_attention_kind("lsh");
  OptionValues values(kind.options);
  for (const OptionSpec& spec : kind.options)
    values.set(spec.name, arguments.options.values_by_name().at(spec.name));
  return kind.make(values, {});
}

Report run_lsh_attention(const BenchmarkArguments& arguments) {
  const auto shortest = arguments.options.get<int64_t>("shortest"),
             longest = arguments.options.get<int64_t>("longest");
  const auto repeats = arguments.options.get<int64_t>("repeats");
  if (shortest > longest) throw ConfigError("--shortest is larger than --longest");
  const auto attention = make_attention(arguments);
  std::vector<LshMeasurement> measurements;
  for (int64_t length = shortest; length <= longest; length *= 2) {
    measurements.emplace_back(arguments, length);
    measurements.back().measure_peak(*attention);
  }
  // Each repeat runs all lengths in turn, so that other load on the machine affects all lengths.
  for (int64_t i = 0; i < repeats; ++i)
    for (LshMeasurement& measurement : measurements) measurement.time(*attention);
  std::vector<Report> rows;
  TimeSpread spread;
  for (const LshMeasurement& measurement : measurements) {
    rows.push_back(measurement.report());
    spread.add(measurement.length(), measurement.per_token());
  }
  Report report;
  report.add("threads", get_thread_count());
  if (spread.ratio() > 0) report.add("spread_from_4096", spread.ratio());
  return report.add("lengths", rows);
}

}  // namespace

Benchmark make_lsh_attention_benchmark() {
  std::vector<OptionSpec> options = make_attention_size_options();
  for (OptionSpec spec : find_attention_kind("lsh").options) {
    if (spec.name == "chunk_length") {
      spec.default_value = int64_t{64};
      spec.help = "positions per chunk";
      spec.min = 1;
    }
    options.push_back(std::move(spec));
  }
  return {.name = "lsh-attention",
          .summary = "causal LSH attention forward and backward at doubling lengths: time per token",
          .options = options,
          .run = run_lsh_attention};
}

}  // namespace tapeformer
