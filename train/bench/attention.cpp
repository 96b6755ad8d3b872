// A benchmark of the time and memory per token of the forward and backward pass of attention kinds, at
// lengths that double. The benchmark corresponds to section 4.1.2 of "Transformers are RNNs", but does not
// include the linear projections.
#include <algorithm>

#include "core/threads/threads.h"
#include "train/bench/attention_lengths.h"
#include "train/bench/bench.h"
#include "train/bench/roofline.h"
#include "train/build.h"

namespace tapeformer {
namespace {

constexpr const char* kCausalMask = "causal";

// Returns the work of one forward and backward pass of causal attention over all sequences. The backward pass
// computes two matrix products for each matrix product of the forward pass.
//
// The number of bytes is a lower bound. The forward pass reads q, k and v and writes the result. The backward
// pass reads q, k, v, the result and the gradient of the result, and writes the gradients of q, k and v. If
// the kind uses the same tensor for queries and keys, the bytes of k and of the gradient of k are not
// counted.
WorkCounts count_attention_work(const AttentionKind& kind, const OptionValues& options,
                                const AttentionTimingOptions& sizes, int64_t length) {
  const double tensor_count = kind.capabilities.shares_query_key ? 3 + 4 + 2 : 4 + 5 + 3;
  const auto sequence_count = static_cast<double>(sizes.batch * sizes.heads);
  return {
      3 * 2 * kind.count_multiply_adds(options, {length, sizes.head_dim}) * sequence_count,
      tensor_count * sequence_count * static_cast<double>(length * sizes.head_dim * size_of(sizes.dtype))};
}

DType select_dtype(const OptionValues& options) {
  const auto& precision = options.get<std::string>("precision");
  const auto& dtype = options.get<std::string>("dtype");
  if (!dtype.empty() && !precision.empty() && dtype != precision)
    throw ConfigError("--dtype " + dtype + " contradicts --precision " + precision);
  return (dtype.empty() ? precision : dtype) == "bfloat16" ? DType::bfloat16 : DType::float32;
}

struct MeasuredKind {
  const AttentionKind* kind;
  OptionValues options;
};

std::vector<MeasuredKind> list_default_kinds(const std::string& only) {
  if (!only.empty()) find_attention_kind("--kind", only);
  std::vector<MeasuredKind> kinds;
  for (const AttentionKind& kind : list_attention_kinds())
    if (only.empty() ? static_cast<bool>(kind.capabilities.causal) : kind.name == only)
      kinds.push_back({&kind, kind.default_options()});
  return kinds;
}

// Returns the attention kinds in the config file that --config names, with the options of each kind. Also
// sets `heads` and `head_dim` in `timing_options` to the values in the config. If run.precision is
// "bfloat16", sets `dtype` to bfloat16.
std::vector<MeasuredKind> list_configured_kinds(const BenchmarkArguments& arguments,
                                                AttentionTimingOptions& timing_options) {
  const Config config = load_attention_config(arguments);
  timing_options.heads = config.model.get<int64_t>("heads");
  timing_options.head_dim = config.model.get<int64_t>("head_dim");
  if (config.run.precision == "bfloat16") timing_options.dtype = DType::bfloat16;
  std::vector<MeasuredKind> kinds;
  for (const auto& [name, options] : config.attention) kinds.push_back({&find_attention_kind(name), options});
  return kinds;
}

Report run_attention(const BenchmarkArguments& arguments) {
  const auto get_integer = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  AttentionTimingOptions timing_options{
      .min_length = get_integer("shortest"),
      .max_length = get_integer("longest"),
      .batch = get_integer("batch"),
      .heads = get_integer("heads"),
      .head_dim = get_integer("head-dim"),
      .repeats = get_integer("repeats"),
      .max_pass_seconds = arguments.options.get<double>("patience"),
      .device = arguments.device,
      .dtype = select_dtype(arguments.options),
      .use_causal_mask = arguments.options.get<std::string>("mask") == kCausalMask};
  const bool has_config = !arguments.options.get<std::string>("config").empty();
  if (!has_config && !arguments.overrides.config_settings.empty()) throw ConfigError("--set needs --config");
  const std::vector<MeasuredKind> measured =
      has_config ? list_configured_kinds(arguments, timing_options)
                 : list_default_kinds(arguments.options.get<std::string>("kind"));
  RunConfig run;
  run.precision = name_of(timing_options.dtype);
  apply_precision(run, timing_options.device);
  if (timing_options.min_length > timing_options.max_length)
    throw ConfigError("--shortest is larger than --longest");
  Report report;
  report.add("device", timing_options.device.to_string())
      .add("dtype", name_of(timing_options.dtype))
      .add("threads", get_thread_count());
  std::vector<Report> rows;
  for (const auto& [measured_kind, options] : measured) {
    const AttentionKind& kind = *measured_kind;
    const auto samples = measure_attention(kind, options, timing_options);
    std::vector<DeviceRates> rates;
    if (kind.count_multiply_adds && timing_options.use_causal_mask)
      rates.push_back(measure_median_device_rates(
          DeviceRateProbe(make_square_product_shapes(timing_options.max_length), timing_options.device),
          timing_options.repeats));
    TimeSpread spread;
    for (const AttentionTiming& sample : samples) {
      spread.add(sample.length, sample.median_seconds / static_cast<double>(sample.length));
      const int64_t tokens = timing_options.batch * sample.length;
      rows.push_back(Report()
                         .add("kind", kind.name)
                         .add("length", sample.length)
                         .add("seconds", sample.median_seconds)
                         .add("microseconds_per_token",
                              kMicrosecondsPerSecond * sample.median_seconds / static_cast<double>(tokens))
                         .add("peak_bytes", sample.peak_bytes)
                         .add("bytes_per_token", sample.peak_bytes / tokens));
      if (!rates.empty())
        add_roofline_comparison(rows.back(),
                                count_attention_work(kind, options, timing_options, sample.length),
                                {sample.median_seconds}, rates);
    }
    if (spread.ratio() > 0) report.add(kind.name + "_spread_from_4096", spread.ratio());
  }
  return report.add("lengths", rows);
}

}  // namespace

Benchmark make_attention_benchmark() {
  std::vector<OptionSpec> options = make_attention_size_options();
  for (OptionSpec& option : options)
    if (option.name == "heads" || option.name == "head-dim") option.used_if = kWithoutConfig;
  options.insert(options.begin(), {.name = "kind",
                                   .default_value = std::string(),
                                   .help = "attention kind to measure; empty: all causal kinds",
                                   .used_if = kWithoutConfig});
  options.insert(options.begin(), {.name = "config",
                                   .default_value = std::string(),
                                   .help = "file with the kind, its options, the heads and the precision; "
                                           "replaces --kind, --heads, --head-dim and --precision"});
  options.push_back(make_precision_option("", "dtype of queries, keys and values; empty: float32"));
  options.back().used_if = kWithoutConfig;
  options.push_back({.name = "dtype",
                     .default_value = std::string(),
                     .help = "dtype of queries, keys and values; the same as --precision",
                     .choices = {"float32", "bfloat16"},
                     .used_if = kWithoutConfig});
  options.push_back({.name = "mask",
                     .default_value = std::string(kCausalMask),
                     .help = "causal: a causal mask if the kind supports it; none: no mask, and no shares of "
                             "the matrix rate and the bandwidth",
                     .choices = {kCausalMask, "none"}});
  options.push_back({.name = "patience",
                     .default_value = 20.0,
                     .help = "largest number of seconds for one pass; longer sequences are skipped",
                     .min = 0});
  return {.name = "attention",
          .summary =
              "attention forward and backward at doubling lengths, causal if the kind supports it: time and "
              "memory per token, and shares of the matrix rate and the memory bandwidth",
          .options = options,
          .run = run_attention,
          .accepts_device_option = true};
}

}  // namespace tapeformer
