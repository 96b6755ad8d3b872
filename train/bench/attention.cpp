// Time and memory per token of each causal attention kind, forward and backward, at doubling lengths. This is
// the benchmark of "Transformers are RNNs", section 4.1.2, without projections.
#include <algorithm>

#include "core/threads.h"
#include "train/bench/attention_lengths.h"
#include "train/bench/bench.h"

namespace tapeformer {
namespace {

Report run_attention(const BenchmarkArguments& arguments) {
  const auto number = [&](const char* name) { return arguments.options.get<int64_t>(name); };
  const AttentionLengths lengths{
      .shortest = number("shortest"),
      .longest = number("longest"),
      .batch = number("batch"),
      .heads = number("heads"),
      .head_dim = number("head-dim"),
      .repeats = number("repeats"),
      .patience = arguments.options.get<double>("patience"),
      .device = arguments.device,
      .dtype = arguments.options.get<std::string>("dtype") == "bfloat16" ? DType::bfloat16 : DType::float32};
  const auto& only = arguments.options.get<std::string>("kind");
  if (!only.empty()) attention_kind(only);
  if (lengths.shortest > lengths.longest) throw ConfigError("--shortest is larger than --longest");
  Report report;
  report.add("device", lengths.device.to_string())
      .add("dtype", name_of(lengths.dtype))
      .add("threads", threads());
  std::vector<Report> rows;
  for (const AttentionKind& kind : attention_kinds()) {
    if ((!only.empty() && kind.name != only) || !kind.capabilities.causal) continue;
    const auto samples = measure_attention(kind, OptionValues(kind.options), lengths);
    Spread spread;
    for (const AttentionSample& sample : samples) {
      spread.add(sample.length, sample.seconds / static_cast<double>(sample.length));
      const int64_t tokens = lengths.batch * sample.length;
      rows.push_back(Report()
                         .add("kind", kind.name)
                         .add("length", sample.length)
                         .add("seconds", sample.seconds)
                         .add("microseconds_per_token", kMicro * sample.seconds / static_cast<double>(tokens))
                         .add("peak_bytes", sample.peak_bytes)
                         .add("bytes_per_token", sample.peak_bytes / tokens));
    }
    if (spread.value() > 0) report.add(kind.name + "_spread_from_4096", spread.value());
  }
  return report.add("lengths", rows);
}

}  // namespace

Benchmark attention_benchmark() {
  std::vector<OptionSpec> options = attention_size_options();
  options.insert(
      options.begin(),
      {.name = "kind", .default_value = std::string(), .help = "attention kind to measure; empty: all"});
  options.push_back({.name = "dtype",
                     .default_value = std::string("float32"),
                     .help = "dtype of queries, keys and values",
                     .choices = {"float32", "bfloat16"}});
  options.push_back({.name = "patience",
                     .default_value = 20.0,
                     .help = "largest number of seconds for one pass; longer sequences are skipped",
                     .min = 0});
  return {.name = "attention",
          .summary = "causal attention forward and backward at doubling lengths: time and memory per token",
          .options = options,
          .run = run_attention,
          .on_devices = true};
}

}  // namespace tapeformer
