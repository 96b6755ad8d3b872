// The benchmark "device-cost": a table of the kernels that a CUDA device launches for a training step, or for
// a decoded token. The times in the table are not measured, but estimated with a DeviceModel.
#include <algorithm>
#include <map>

#include "train/bench/bench.h"
#include "train/bench/device_cost.h"
#include "train/bench/device_model.h"

namespace tapeformer {
namespace {

std::string get_operand_type_name(cuda::OperandType type) {
  constexpr const char* kNames[] = {"float32", "tf32", "bfloat16", "float64"};
  return kNames[static_cast<size_t>(type)];
}

// Returns the name of a launch. Kernels and copies are named after their source line, and products after
// their shape, so repeated launches have the same name.
std::string make_launch_name(const cuda::WorkRecord& work) {
  const std::string path = work.where.file;
  const std::string source_line = concat_text(path.substr(path.rfind('/') + 1), ":", work.where.line);
  if (work.kind == cuda::WorkKind::copy) return "copy " + source_line;
  if (work.kind == cuda::WorkKind::kernel) return "kernel " + source_line;
  const cuda::ProductShape& p = work.product;
  return concat_text("product ", p.count > 1 ? concat_text(p.count, " x ") : "", p.m, " x ", p.n, " x ", p.k,
                     " ", get_operand_type_name(work.operand_type),
                     p.epilogue.empty() ? "" : ", " + p.epilogue);
}

// Sums over the launches with the same name and op.
struct LaunchGroup {
  std::string name, op, note;
  int64_t launch_count = 0, block_count = 0, byte_count = 0;
  double flop = 0, warp_instructions = 0, seconds = 0;
};

std::vector<LaunchGroup> group_launches(const DeviceWork& work, const DeviceModel& device) {
  std::map<std::pair<std::string, std::string>, LaunchGroup> groups;
  for (const cuda::WorkRecord& record : work.records) {
    const std::string name = make_launch_name(record);
    LaunchGroup& group = groups[{name, record.op}];
    group.name = name;
    group.op = record.op;
    ++group.launch_count;
    group.byte_count += record.bytes;
    group.flop += record.flop;
    group.warp_instructions += record.warp_instructions;
    group.seconds += estimate_seconds(record, device);
    const bool is_product = record.kind == cuda::WorkKind::product;
    group.block_count =
        std::max(group.block_count,
                 is_product ? count_gemm_thread_blocks(record.product, device) : record.block_count);
    if (is_product && group.block_count < device.multiprocessor_count)
      group.note =
          concat_text(group.block_count, " blocks for ", device.multiprocessor_count, " multiprocessors");
  }
  std::vector<LaunchGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  std::stable_sort(list.begin(), list.end(),
                   [](const LaunchGroup& a, const LaunchGroup& b) { return a.seconds > b.seconds; });
  return list;
}

// Returns the number of launches that one encoder layer adds. Returns null if the model has only one layer.
// Also returns null if the layers use several attention kinds, because the number of launches differs between
// attention kinds.
Report::Value count_launches_per_layer(const BenchmarkedModel& choice, int64_t launches,
                                       const std::function<DeviceWork(const BenchmarkedModel&)>& count) {
  if (choice.model.encoder.layers < 2 || choice.model.encoder.attention.size() > 1) return std::monostate{};
  BenchmarkedModel shallower = choice;
  --shallower.model.encoder.layers;
  return launches - count(shallower).launch_count();
}

Report run_device_cost(const BenchmarkArguments& arguments) {
  const OptionValues& options = arguments.options;
  const DeviceModel& model = find_device_model(options.get<std::string>("device-model"));
  const auto requested_batch_size = options.get<int64_t>("batch");
  BenchmarkedModel choice = choose_model(arguments, requested_batch_size > 0 ? requested_batch_size : 10);
  if (requested_batch_size > 0) choice.batch_size = requested_batch_size;
  const bool decodes = options.get<std::string>("work") == "token";
  if (decodes) check_decodable(choice.model);
  const Device device = arguments.device;
  apply_precision(choice.run, device);
  const auto count = [&](const BenchmarkedModel& counted) {
    return decodes ? count_decoding_step_work(counted, counted.batch_size, device, model.memory_bytes)
                   : count_training_step_work(counted, device, model.memory_bytes);
  };
  const DeviceWork work = count(choice);
  double seconds = 0, seconds_at_peak = 0;
  for (const cuda::WorkRecord& record : work.records) {
    seconds += estimate_seconds(record, model);
    seconds_at_peak += record.flop / model.peak_rate(record.operand_type);
  }
  std::vector<Report> rows;
  for (const LaunchGroup& group : group_launches(work, model))
    rows.push_back(Report()
                       .add("work", group.name)
                       .add("op", group.op)
                       .add("launches", group.launch_count)
                       .add("blocks", group.block_count)
                       .add("megabytes", static_cast<double>(group.byte_count) / 1e6)
                       .add("gflop", group.flop / kGiga)
                       .add("giga_warp_instructions", group.warp_instructions / kGiga)
                       .add("microseconds", group.seconds * kMicrosecondsPerSecond)
                       .add("share", group.seconds / seconds)
                       .add("note", group.note));
  const auto tokens = static_cast<double>(choice.batch_size * (decodes ? 1 : choice.model.max_length));
  return Report()
      .add("device_model", model.name)
      .add("source", model.source)
      .add("work", decodes ? "a decoded token of each sequence" : "a training step")
      .add("attention", join_kind_names(choice.model.encoder.attention))
      .add("precision", choice.run.precision)
      .add("parameters", work.parameter_count)
      .add("batch", choice.batch_size)
      .add("length", choice.model.max_length)
      .add("launches", work.launch_count())
      .add("launches_per_layer", count_launches_per_layer(choice, work.launch_count(), count))
      .add("gigabytes", static_cast<double>(work.byte_count()) / kGiga)
      .add("gflop", work.flop_count() / kGiga)
      .add("estimated_milliseconds", seconds * kMillisecondsPerSecond)
      .add("tokens_per_second", tokens / seconds)
      .add("sequences_per_second", tokens / static_cast<double>(choice.model.max_length) / seconds)
      .add("share_of_matrix_rate", seconds_at_peak / seconds)
      .add("share_of_memory_rate", static_cast<double>(work.byte_count()) / model.memory_bandwidth / seconds)
      .add("peak_bytes", work.peak_bytes)
      .add("launch_groups", rows);
}

std::vector<std::string> list_device_model_names() {
  std::vector<std::string> names;
  for (const DeviceModel& device : list_device_models()) names.push_back(device.name);
  return names;
}

}  // namespace

Benchmark make_device_cost_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  options.push_back({.name = "batch",
                     .default_value = int64_t{0},
                     .help = "sequences; 0: the batch size of --config, or 10",
                     .min = 0,
                     .max = 1 << 20});
  options.push_back(make_work_option());
  options.push_back({.name = "device-model",
                     .default_value = std::string("h200"),
                     .help = "device model for the estimated times",
                     .choices = list_device_model_names()});
  return {
      .name = "device-cost",
      .summary =
          "launches, bytes and operations of a training step or of a decoded token on a CUDA device, with "
          "estimated times; the emulation of CUDA counts the work and computes nothing",
      .options = options,
      .run = run_device_cost,
      .counts_device_work = true};
}

}  // namespace tapeformer
