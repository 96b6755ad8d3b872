// Time and memory per sequence of attention kinds at doubling lengths, forward and backward: "Transformers
// are RNNs" (Katharopoulos et al. 2020), figure 1, and "Reformer" (Kitaev et al. 2020), figure 5. LSH
// attention is configured as in Reformer, with chunks of 64. The baselines lsh-1 and lsh-4 of the first paper
// have other chunks.
#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/system/log.h"
#include "core/threads.h"
#include "train/bench/attention_lengths.h"
#include "train/bench/bench.h"
#include "train/reproduce/chart.h"
#include "train/reproduce/reproduce.h"

namespace tapeformer {
namespace {

constexpr double kPatience = 20, kPaperPatience = 600;  // largest number of seconds for one pass

struct Curve {
  const AttentionKind* kind;
  std::string name;
  OptionValues options;
  bool is_linear;  // time is linear in the length
};

// Returns the curves of all causal kinds with a known cost, the kinds of quadratic time first.
std::vector<Curve> curves() {
  std::vector<Curve> all;
  for (const AttentionKind& kind : attention_kinds()) {
    if (!kind.capabilities.causal || !kind.multiply_adds) continue;
    std::vector<AttentionVariant> variants = kind.variants;
    if (variants.empty()) variants = {{kind.name, {}}};
    for (const AttentionVariant& variant : variants) {
      const OptionValues options = kind.values(variant.options);
      const auto cost = [&](int64_t length) { return kind.multiply_adds(options, {length, 64}); };
      all.push_back({&kind, variant.name, options, cost(1 << 20) < 3 * cost(1 << 19)});
    }
  }
  std::stable_partition(all.begin(), all.end(), [](const Curve& curve) { return !curve.is_linear; });
  return all;
}

// Returns a power of the length that passes through the last point of `measured`.
Series theory(const std::string& name, const Series& measured, double power) {
  Series line{.name = name, .points = {}, .expected = true};
  if (measured.points.empty()) return line;
  const auto [last_x, last_y] = measured.points.back();
  for (const auto& [x, y] : measured.points)
    line.points.emplace_back(x, last_y * std::pow(x / last_x, power));
  return line;
}

// Adds the theory through the first curve of quadratic time and through the first curve of linear time.
void add_theory(const std::vector<Curve>& measured, Chart& time, Chart& memory) {
  const auto first = [&](bool is_linear) {
    const auto found = std::find_if(measured.begin(), measured.end(),
                                    [&](const Curve& curve) { return curve.is_linear == is_linear; });
    return static_cast<size_t>(found - measured.begin());
  };
  const size_t quadratic = first(false), linear = first(true);
  if (quadratic < measured.size()) time.series.push_back(theory("length²", time.series[quadratic], 2));
  if (linear == measured.size()) return;
  time.series.push_back(theory("length", time.series[linear], 1));
  memory.series.push_back(theory("length", memory.series[linear], 1));
}

std::vector<OptionSpec> length_specs() {
  const double longest = 1 << 24;
  return {
      {.name = "shortest",
       .default_value = int64_t{512},
       .help = "smallest length",
       .min = 1,
       .max = longest},
      {.name = "longest",
       .default_value = int64_t{65536},
       .help = "largest length",
       .min = 1,
       .max = longest},
      {.name = "heads", .default_value = int64_t{8}, .help = "attention heads", .min = 1, .max = 4096},
      {.name = "head_dim",
       .default_value = int64_t{64},
       .help = "dimensions of a head",
       .min = 1,
       .max = 4096},
      {.name = "repeats",
       .default_value = int64_t{3},
       .help = "repeats for the median",
       .min = 1,
       .max = 1000},
      {.name = "patience",
       .default_value = 0.0,
       .help = "largest number of seconds for one pass; longer sequences are skipped; 0: 20, with --scale "
               "paper 600",
       .min = 0}};
}

AttentionLengths measured_lengths(const ReproductionOptions& options) {
  const OptionValues& m = options.measure;
  AttentionLengths lengths{.shortest = m.get<int64_t>("shortest"),
                           .longest = m.get<int64_t>("longest"),
                           .heads = m.get<int64_t>("heads"),
                           .head_dim = m.get<int64_t>("head_dim"),
                           .repeats = m.get<int64_t>("repeats"),
                           .patience = m.get<double>("patience"),
                           .device = options.device};
  lengths.seed = options.seed(lengths.seed);
  if (lengths.patience == 0) lengths.patience = options.paper ? kPaperPatience : kPatience;
  if (lengths.shortest > lengths.longest)
    throw ConfigError(concat_text("measure.longest = ", lengths.longest,
                                  ": expected at least measure.shortest = ", lengths.shortest));
  return lengths;
}

Report reproduce_attention_scaling(const ReproductionOptions& options) {
  const AttentionLengths lengths = measured_lengths(options);
  const Axis length_axis{"sequence length", Scale::log2};
  Chart time{.title = "Attention, forward and backward, per sequence",
             .x = length_axis,
             .y = {"milliseconds", Scale::log10},
             .series = {}};
  Chart memory{.title = "Attention, forward and backward, peak memory",
               .x = length_axis,
               .y = {"MiB", Scale::log10},
               .series = {}};
  std::vector<Report> rows;
  std::vector<CsvRow> csv = {{"attention", "length", "seconds", "peak_bytes"}};
  const std::vector<Curve> measured = curves();
  for (const Curve& curve : measured) {
    log_info("measuring ", curve.name);
    Series seconds{.name = curve.name, .points = {}}, bytes = seconds;
    for (const AttentionSample& sample : measure_attention(*curve.kind, curve.options, lengths)) {
      const auto length = static_cast<double>(sample.length), peak = static_cast<double>(sample.peak_bytes);
      seconds.points.emplace_back(length, kMilli * sample.seconds);
      bytes.points.emplace_back(length, peak / kMebi);
      csv.push_back({curve.name, std::to_string(sample.length), csv_number(sample.seconds),
                     std::to_string(sample.peak_bytes)});
      rows.push_back(Report()
                         .add("attention", curve.name)
                         .add("length", sample.length)
                         .add("seconds", sample.seconds)
                         .add("peak_bytes", sample.peak_bytes));
    }
    // Writes the file after each curve, so that an interrupted reproduction keeps the complete curves.
    write_csv(options.out / "attention-scaling.csv", csv);
    time.series.push_back(seconds);
    memory.series.push_back(bytes);
  }
  add_theory(measured, time, memory);
  write_chart(options.out / "attention-time", time);
  write_chart(options.out / "attention-memory", memory);
  return Report()
      .add("device", options.device.to_string())
      .add("threads", threads())
      .add("heads", lengths.heads)
      .add("head_dim", lengths.head_dim)
      .add("lengths", rows);
}

}  // namespace

Reproduction attention_scaling_reproduction() {
  return {.name = "attention-scaling",
          .summary = "time and memory of attention kinds at lengths from 2^9 to 2^16 (both papers)",
          .run = reproduce_attention_scaling,
          .measure = length_specs()};
}

}  // namespace tapeformer
