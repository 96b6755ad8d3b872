// Every attention kind, forward and backward, at doubling lengths: time and memory per token. The benchmark
// of "Transformers are RNNs", section 4.1.2, without projections.
#include <map>

#include "core/allocator.h"
#include "models/attention/attention.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"

namespace tapeformer {
namespace {

constexpr double kMicro = 1e6;
constexpr int64_t kTokensTimed = 1 << 14;  // short sequences run several times for one time
constexpr int64_t kFlatFrom = 4096;        // "flat" compares the times per token from here on

struct Sample {
  double seconds = 0;  // of one forward and backward
  int64_t peak = 0;    // bytes, inputs and gradients included
};

Tensor random_input(const Shape& shape, const char* name) {
  const Tensor x = Tensor::empty(shape);
  const RandomStream stream(1, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
  return require_grad(x);
}

Sample measure(const Attention& attention, int64_t length, const CommandLine& line) {
  const Shape shape{line.options.get<int64_t>("batch"), length, line.options.get<int64_t>("heads"),
                    line.options.get<int64_t>("head-dim")};
  const int64_t before = allocator().stats().active;
  const Tensor q = random_input(shape, "q"), k = random_input(shape, "k"), v = random_input(shape, "v");
  const Tensor cotangent = Tensor::full(shape, 1);
  allocator().reset_peak();
  const auto once = [&] {
    backward(attention.forward(q, k, v, {.causal = true, .key_lengths = {}}, {}, "bench"), cotangent);
    for (const Tensor& x : {q, k, v}) set_gradient(x, {});
  };
  const int64_t inner = std::max<int64_t>(kTokensTimed / length, 1);
  const double seconds = median_seconds(line.options.get<int64_t>("repeats"), [&] {
    for (int64_t i = 0; i < inner; ++i) once();
  });
  return {seconds / static_cast<double>(inner), allocator().stats().peak - before};
}

// Slowest over fastest time per token of the long sequences; 1 is flat.
double spread(const std::map<int64_t, double>& per_token) {
  double fastest = 0, slowest = 0;
  for (const auto& [length, seconds] : per_token) {
    if (length < kFlatFrom) continue;
    fastest = fastest == 0 ? seconds : std::min(fastest, seconds);
    slowest = std::max(slowest, seconds);
  }
  return fastest > 0 ? slowest / fastest : 0;
}

Report run(const CommandLine& line) {
  const auto shortest = line.options.get<int64_t>("shortest"), longest = line.options.get<int64_t>("longest");
  const auto batch = line.options.get<int64_t>("batch");
  const double patience = line.options.get<double>("patience");
  const std::string only = line.options.get<std::string>("kind");
  if (!only.empty()) attention_kind(only);
  Report report;
  report.add("threads", threads());
  std::vector<Report> rows;
  for (const AttentionKind& kind : attention_kinds()) {
    if ((!only.empty() && kind.name != only) || !kind.capabilities.causal) continue;
    const auto attention = kind.make(OptionValues(kind.options), 0);
    std::map<int64_t, double> per_token;
    for (int64_t length = shortest; length <= longest; length *= 2) {
      const Sample sample = measure(*attention, length, line);
      const auto tokens = static_cast<double>(batch * length);
      per_token[length] = sample.seconds / tokens;
      rows.push_back(Report()
                         .add("kind", kind.name)
                         .add("length", length)
                         .add("seconds", sample.seconds)
                         .add("microseconds_per_token", kMicro * sample.seconds / tokens)
                         .add("peak_bytes", sample.peak)
                         .add("bytes_per_token", sample.peak / (batch * length)));
      // Twice the length takes at most four times as long.
      if (4 * sample.seconds > patience) break;
    }
    if (per_token.rbegin()->first > kFlatFrom) report.add(kind.name + "_spread_from_4096", spread(per_token));
  }
  return report.add("lengths", rows);
}

}  // namespace

Benchmark attention_benchmark() {
  return {.name = "attention",
          .summary = "causal attention forward and backward at doubling lengths: time and memory per token",
          .options =
              {{.name = "kind", .default_value = std::string(), .help = "one attention kind only"},
               {.name = "shortest",
                .default_value = int64_t{512},
                .help = "first length",
                .min = 1,
                .max = 1 << 24},
               {.name = "longest",
                .default_value = int64_t{65536},
                .help = "last length",
                .min = 1,
                .max = 1 << 24},
               {.name = "batch", .default_value = int64_t{1}, .help = "sequences", .min = 1, .max = 4096},
               {.name = "heads", .default_value = int64_t{8}, .help = "heads", .min = 1, .max = 1024},
               {.name = "head-dim",
                .default_value = int64_t{64},
                .help = "width of a head",
                .min = 1,
                .max = 1024},
               {.name = "patience",
                .default_value = 20.0,
                .help = "seconds that one pass may take; longer lengths are left out",
                .min = 0},
               {.name = "repeats", .default_value = int64_t{5}, .help = "repeats for the median", .min = 1}},
          .run = run};
}

}  // namespace tapeformer
