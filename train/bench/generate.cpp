// A benchmark of generation with one sequence on one core, and with a batch of sequences on all cores. In the
// recurrent form, the time per token is compared with the time of matrix products of the same shapes. On the
// CPU, it is also compared with the time of reading all weights once.
#include <optional>

#include "core/allocator.h"
#include "core/system/machine.h"
#include "models/decoder.h"
#include "models/generation.h"
#include "train/bench/bench.h"
#include "train/bench/measure.h"
#include "train/bench/model_choice.h"
#include "train/bench/roofline.h"
#include "train/build.h"

namespace tapeformer {
namespace {

// Reads the first `share` (from 0 to 1) of each weight tensor. Each thread reads an equal part of each
// tensor. Returns the sum of the 32-bit words.
uint32_t read_weights(const NamedTensors& weights, double share) {
  const int64_t team = get_thread_count();
  std::vector<uint32_t> sums(static_cast<size_t>(team));
  parallel_for(team, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      uint32_t sum = 0;  // integer addition is associative, so the compiler vectorizes it
      for (const auto& [name, weight] : weights) {
        const auto* words = static_cast<const uint32_t*>(weight.raw_data());
        const auto count = static_cast<int64_t>(share * static_cast<double>(weight.numel()));
        const int64_t last = count * (part + 1) / team;
        for (int64_t i = count * part / team; i < last; ++i) sum += words[i];
      }
      sums[static_cast<size_t>(part)] = sum;
    }
  });
  uint32_t total = 0;
  for (const uint32_t sum : sums) total += sum;
  return total;
}

// Returns the estimated time in seconds to read all weights of dtype `stored` once. The weights in memory
// have the dtype float32, so the function reads only half of each weight tensor if `stored` is bfloat16.
double read_seconds(const NamedTensors& weights, DType stored) {
  constexpr int kPasses = 20;
  const double share = static_cast<double>(size_of(stored)) / sizeof(float);
  volatile uint32_t sink = 0;  // keeps the compiler from removing the reads
  return measure_call_seconds([&] {
           for (int i = 0; i < kPasses; ++i) sink = sink + read_weights(weights, share);
         }) /
         kPasses;
}

// Returns the operations and bytes of one step, which generates one token of every sequence.
// - Each weight takes one multiply-add per sequence and is read once, in the dtype `stored`.
// - A state of constant size is read once and written once.
// - A key/value cache has room for max_length tokens. A step reads the cache up to the current position. On
//   average over the steps, the current position is half of `tokens`.
WorkCounts count_token_work(const AutoregressiveModel& model, int64_t batch, int64_t tokens, DType stored) {
  const AutoregressiveModelOptions& options = model.options();
  const auto state = static_cast<double>(Decoder(model, batch).state_bytes());
  const bool constant = supports(options.encoder.attention, &AttentionCapabilities::has_constant_size_state);
  const double passes =
      constant ? 2 : 0.5 * static_cast<double>(tokens) / static_cast<double>(options.max_length);
  return {sum_flops(list_forward_gemms(options, batch)),
          static_cast<double>(count_parameters(model) * size_of(stored)) + passes * state};
}

std::vector<GemmShape> repeat_products(std::vector<GemmShape> products, int64_t times) {
  for (GemmShape& product : products) product.product_count *= times;
  return products;
}

Report measure(const AutoregressiveModel& model, int64_t batch, int64_t tokens, int64_t repeats,
               bool graphs) {
  const Device device = model.predictor.weight.device();
  const Tensor first = Tensor::zeros({batch, 1}, DType::uint8);
  const auto draw = [&](int64_t count) { generate(model, first, count + 1, {.use_cuda_graphs = graphs}); };
  const auto allocations = [&](int64_t count) {
    const int64_t before = get_device_allocator(device).stats().allocation_count;
    draw(count);
    return get_device_allocator(device).stats().allocation_count - before;
  };
  const auto weights = model.parameters();
  const DType stored = get_operand_dtype(device);
  const WorkCounts work = count_token_work(model, batch, tokens, stored);
  draw(tokens);
  const int64_t resident = get_peak_resident_bytes();
  const GemmRunner products(repeat_products(list_forward_gemms(model.options(), batch), tokens), device);
  std::optional<CopyBenchmark> copy;
  if (!device.is_cpu()) copy.emplace(device);
  products.run();
  std::vector<double> times, reads, ratios;
  std::vector<DeviceRates> rates;
  for (int64_t i = 0; i < repeats; ++i) {
    times.push_back(measure_call_seconds([&] { draw(tokens); }, device) / static_cast<double>(tokens));
    const double product_seconds = measure_call_seconds([&] { products.run(); }, device);
    rates.push_back({.flops_per_second = sum_flops(products.products()) / product_seconds});
    if (copy) {
      rates.back().bytes_per_second = copy->measure_bytes_per_second();
      continue;
    }
    // On the CPU, the bandwidth is measured by reading the weights. For weights that fit into the last-level
    // cache, the bandwidth that CopyBenchmark measures would be too low.
    reads.push_back(read_seconds(weights, stored));
    ratios.push_back(times.back() / reads.back());
    rates.back().bytes_per_second =
        static_cast<double>(count_parameters(model) * size_of(stored)) / reads.back();
  }
  // The allocations for the first tokens are not counted, because these allocations include the state and the
  // memory of the CUDA graph.
  const int64_t uncounted = std::min<int64_t>(tokens, 3);
  const auto later_allocations = static_cast<double>(allocations(tokens) - allocations(uncounted));
  Report report;
  report.add("device", device.to_string())
      .add("threads", get_thread_count())
      .add("batch", batch)
      .add("milliseconds_per_token", compute_median(times) * kMillisecondsPerSecond);
  if (device.is_cpu())
    report.add("milliseconds_to_read_weights", compute_median(reads) * kMillisecondsPerSecond)
        .add("times_reading", compute_median(ratios));
  add_roofline_comparison(report, work, times, rates);
  return report.add("tokens_per_second", static_cast<double>(batch) / compute_median(times))
      .add("allocations_per_token",
           tokens > uncounted ? later_allocations / static_cast<double>(tokens - uncounted) : 0)
      .add("state_bytes", Decoder(model, batch).state_bytes())
      .add("peak_resident_bytes", resident);
}

// Measures `tokens` steps of the recurrent form after `context` tokens, which the parallel form reads.
Report measure_after(const AutoregressiveModel& model, int64_t batch, int64_t context, int64_t tokens,
                     int64_t repeats) {
  constexpr int64_t kPart = 2048;  // tokens that are read at once
  const Device device = model.predictor.weight.device();
  Decoder decoder(model, batch, context + tokens * (repeats + 1));
  const double read_seconds = measure_call_seconds(
      [&] {
        for (int64_t read = 0; read < context; read += kPart)
          decoder.read(Tensor::zeros({batch, std::min(kPart, context - read)}, DType::int64, device));
      },
      device);
  const Tensor token = Tensor::zeros({batch}, DType::int64, device);
  const double seconds = measure_median_call_seconds(
                             repeats,
                             [&] {
                               for (int64_t i = 0; i < tokens; ++i) decoder.step(token);
                             },
                             device) /
                         static_cast<double>(tokens);
  return Report()
      .add("device", device.to_string())
      .add("threads", get_thread_count())
      .add("batch", batch)
      .add("context", context)
      .add("seconds_to_read_context", read_seconds)
      .add("milliseconds_per_token", seconds * kMillisecondsPerSecond)
      .add("tokens_per_second", static_cast<double>(batch) / seconds)
      .add("state_bytes", decoder.state_bytes())
      .add("peak_resident_bytes", get_peak_resident_bytes());
}

// Measures generation in the mode "recompute", which recomputes the whole prefix for each token. If
// `positions` is not 0, measures only so many of the tokens, at evenly spaced positions.
Report measure_recompute(const AutoregressiveModel& model, int64_t batch, int64_t tokens, int64_t positions,
                         int64_t repeats) {
  const Device device = model.predictor.weight.device();
  const GenerationOptions options{.mode = GenerationMode::recompute};
  const auto draw = [&](int64_t prefix, int64_t count) {
    generate(model, Tensor::zeros({batch, prefix}, DType::uint8), prefix + count, options);
  };
  const auto draw_all = [&] {
    if (positions == 0) return draw(1, tokens);
    for (int64_t i = 0; i < positions; ++i) draw((2 * i + 1) * tokens / (2 * positions) + 1, 1);
  };
  const double seconds = measure_median_call_seconds(repeats, draw_all, device) /
                         static_cast<double>(positions == 0 ? tokens : positions);
  return Report()
      .add("device", device.to_string())
      .add("threads", get_thread_count())
      .add("batch", batch)
      .add("milliseconds_per_token", seconds * kMillisecondsPerSecond)
      .add("tokens_per_second", static_cast<double>(batch) / seconds)
      .add("state_bytes", int64_t{0})
      .add("peak_resident_bytes", get_peak_resident_bytes());
}

// Returns whether generation recomputes the whole prefix for each token. The mode "auto" recomputes only if
// an attention kind has no recurrent form. Throws ConfigError if the mode "recurrent" is requested but an
// attention kind has no recurrent form.
bool uses_recomputation(const OptionValues& options, const AttentionPattern& attention) {
  const auto& mode = options.get<std::string>("mode");
  const bool recurrent = supports(attention, &AttentionCapabilities::recurrent);
  if (mode == "recurrent" && !recurrent)
    throw ConfigError("--mode recurrent: " +
                      describe_unsupported(attention, "recurrent form", &AttentionCapabilities::recurrent) +
                      "; use --mode recompute");
  return mode == "recompute" || !recurrent;
}

Report run_generate(const BenchmarkArguments& arguments) {
  const auto tokens = arguments.options.get<int64_t>("tokens"),
             positions = arguments.options.get<int64_t>("positions"),
             context = arguments.options.get<int64_t>("context"),
             repeats = arguments.options.get<int64_t>("repeats");
  const BenchmarkedModel choice = choose_model(arguments, 1);
  AutoregressiveModel model(choice.model);
  model.initialize(choice.seed);
  const Device device = arguments.device;
  apply_precision(choice.run, device);
  model.move(device);
  if (tokens > choice.model.max_length)
    throw ConfigError(
        concat_text("--tokens ", tokens, ": the model's sequences have ", choice.model.max_length));
  if (positions > tokens)
    throw ConfigError(concat_text("--positions ", positions, ": expected at most --tokens, ", tokens));
  const bool recompute = uses_recomputation(arguments.options, choice.model.encoder.attention);
  if (positions > 0 && !recompute)
    throw ConfigError("--positions: only recomputation can leave out positions");
  if (context > 0 && recompute)
    throw ConfigError("--context: only the recurrent form reads a context before the measured tokens");
  if (context > 0 && context > model.options().position_limit() - tokens * (repeats + 1))
    throw ConfigError(concat_text("--context ", context, ": with ", repeats + 1, " times ", tokens,
                                  " tokens, more than the ", choice.model.max_length,
                                  " positions of the model"));
  const auto row = [&](int64_t batch) {
    if (context > 0) return measure_after(model, batch, context, tokens, repeats);
    return recompute ? measure_recompute(model, batch, tokens, positions, repeats)
                     : measure(model, batch, tokens, repeats, choice.run.cuda_graphs);
  };
  std::vector<Report> rows;
  {
    const ThreadCountScope one_thread(1);
    rows.push_back(row(1));
  }
  rows.push_back(row(arguments.options.get<int64_t>("batch")));
  return Report()
      .add("attention", join_kind_names(choice.model.encoder.attention))
      .add("mode", recompute ? "recompute" : "recurrent")
      .add("precision", choice.run.precision)
      .add("parameters", count_parameters(model))
      .add("tokens", tokens)
      .add("cases", rows);
}

}  // namespace

Benchmark make_generation_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  options.push_back({.name = "batch",
                     .default_value = int64_t{64},
                     .help = "sequences of the case on all cores",
                     .min = 1,
                     .max = 1 << 20});
  options.push_back({.name = "mode",
                     .default_value = std::string("auto"),
                     .help =
                         "recurrent: one step per token; recompute: the whole prefix for each token; auto: "
                         "recurrent if the attention kind has a recurrent form",
                     .choices = {"auto", "recurrent", "recompute"}});
  options.push_back(
      {.name = "tokens", .default_value = int64_t{128}, .help = "tokens generated per repeat", .min = 1});
  options.push_back({.name = "context",
                     .default_value = int64_t{0},
                     .help = "tokens that the recurrent form has read before the measured tokens",
                     .min = 0,
                     .max = 1 << 24});
  options.push_back(
      {.name = "positions",
       .default_value = int64_t{0},
       .help = "tokens measured in the mode recompute, at evenly spaced positions; 0: all tokens",
       .min = 0});
  options.push_back(
      {.name = "repeats", .default_value = int64_t{7}, .help = "repeats for the median", .min = 1});
  return {.name = "generate",
          .summary =
              "generation: one sequence on one core compared with reading the weights, and a batch on all "
              "cores compared with products of its shapes",
          .options = options,
          .run = run_generate,
          .accepts_device_option = true};
}

}  // namespace tapeformer
