// A benchmark of LSH attention, forward and backward, at doubling lengths. Reports the time per token, the
// share of each stage in the time, and the rate of the matrix products compared with sgemm on the same
// shapes.
#include <map>

#include "core/allocator.h"
#include "models/attention/attention.h"
#include "ops/kernels/lsh_stages.h"
#include "ops/lsh_attention.h"
#include "tests/bench/benchmarks.h"
#include "train/bench/attention_lengths.h"
#include "train/bench/gemm_work.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

constexpr double kSecondsPerNanosecond = 1e-9;
class ChunkProducts;

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
  Report report(const Attention& attention, const ChunkProducts& chunk_products, int64_t repeats) const;

 private:
  int64_t length_, initial_bytes_;
  Shape shape_;
  Tensor q_, v_, cotangent_;
  std::vector<double> seconds_;
  int64_t peak_ = 0;
};

// Matrix products with the shapes of the products in LSH attention. The queries of one chunk attend to the
// keys of two chunks. Each thread computes all of the products.
class ChunkProducts {
 public:
  ChunkProducts(int64_t chunk, int64_t dim) {
    const std::vector<GemmShape> shapes = {{"scores", chunk, 2 * chunk, dim, false, true, 64},
                                           {"values", chunk, dim, 2 * chunk, false, false, 64},
                                           {"key gradients", 2 * chunk, dim, chunk, true, false, 64}};
    for (int i = 0; i < get_thread_count(); ++i) work_.emplace_back(shapes);
  }
  double gflops_per_thread() const {
    const auto team = static_cast<int64_t>(work_.size());
    const double seconds = measure_call_seconds([&] {
      parallel_for(team, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work_[static_cast<size_t>(i)].run();
      });
    });
    return sum_flops(work_.front().products()) / seconds / kGiga;
  }

 private:
  std::vector<GemmRunner> work_;
};

// Returns the results for the length of the measurement, including the share of each stage in the total time
// of all threads. Attention passes and calls of sgemm on the same shapes alternate, so that other load on the
// machine affects both measurements.
Report LshMeasurement::report(const Attention& attention, const ChunkProducts& chunk_products,
                              int64_t repeats) const {
  LshStageTimes stages;
  std::vector<double> rates, ratios;
  double seconds = 0;
  for (int64_t i = 0; i < repeats; ++i) {
    const int64_t products = stages.products, multiply_adds = stages.multiply_adds;
    lsh_stage_times = &stages;
    seconds += measure_call_seconds([&] { run(attention); });
    lsh_stage_times = nullptr;
    rates.push_back(2 * static_cast<double>(stages.multiply_adds - multiply_adds) /
                    static_cast<double>(stages.products - products));
    ratios.push_back(rates.back() / chunk_products.gflops_per_thread());
  }
  const double available = seconds * get_thread_count();
  const auto share = [&](const std::atomic<int64_t>& nanoseconds) {
    return kSecondsPerNanosecond * static_cast<double>(nanoseconds) / available;
  };
  return Report()
      .add("length", length_)
      .add("seconds", compute_median(seconds_))
      .add("microseconds_per_token", kMicrosecondsPerSecond * per_token())
      .add("peak_bytes", peak_)
      .add("bytes_per_token", peak_ / (shape_[0] * length_))
      .add("share_hash", share(stages.hash))
      .add("share_sort", share(stages.sort))
      .add("share_gather", share(stages.gather))
      .add("share_products", share(stages.products))
      .add("share_softmax", share(stages.softmax))
      .add("share_scatter", share(stages.scatter))
      .add("multiply_adds_per_token", stages.multiply_adds / (repeats * shape_[0] * length_))
      .add("products_gflops_per_thread", compute_median(rates))
      .add("products_over_sgemm", compute_median(ratios));
}

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
  const int64_t chunk = std::max<int64_t>(arguments.options.get<int64_t>("chunk_length"), 1);
  const ChunkProducts chunk_products(chunk, arguments.options.get<int64_t>("head-dim"));
  std::vector<Report> rows;
  TimeSpread spread;
  for (const LshMeasurement& measurement : measurements) {
    rows.push_back(measurement.report(*attention, chunk_products, repeats));
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
          .summary =
              "causal LSH attention forward and backward at doubling lengths: time per token and per stage",
          .options = options,
          .run = run_lsh_attention};
}

}  // namespace tapeformer
