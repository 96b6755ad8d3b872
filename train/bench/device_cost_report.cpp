// The benchmark "device-cost": a table of the launches of a training step or of a decoded token. The times in
// the table are estimates for a model of a CUDA device and are not measured.
#include <algorithm>
#include <map>

#include "train/bench/bench.h"
#include "train/bench/device_cost.h"
#include "train/bench/device_model.h"

namespace tapeformer {
namespace {

std::string type_text(cuda::OperandType type) {
  constexpr const char* kNames[] = {"float32", "tf32", "bfloat16", "float64"};
  return kNames[static_cast<size_t>(type)];
}

// Returns the name of a launch. Kernels and copies are named after their source line, and products after
// their shape, so repeated launches have the same name.
std::string name_of(const cuda::WorkRecord& work) {
  const std::string path = work.where.file;
  const std::string place = concat_text(path.substr(path.rfind('/') + 1), ":", work.where.line);
  if (work.kind == cuda::WorkKind::copy) return "copy " + place;
  if (work.kind == cuda::WorkKind::kernel) return "kernel " + place;
  const cuda::ProductShape& p = work.product;
  return concat_text("product ", p.count > 1 ? concat_text(p.count, " x ") : "", p.m, " x ", p.n, " x ", p.k,
                     " ", type_text(work.type), p.epilogue.empty() ? "" : ", " + p.epilogue);
}

// Sums over the launches with the same name and op.
struct Group {
  std::string name, op, note;
  int64_t launches = 0, blocks = 0, bytes = 0;
  double flop = 0, seconds = 0;
};

std::vector<Group> groups_of(const DeviceWork& work, const DeviceModel& device) {
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const cuda::WorkRecord& record : work.records) {
    const std::string name = name_of(record);
    Group& group = groups[{name, record.op}];
    group.name = name;
    group.op = record.op;
    ++group.launches;
    group.bytes += record.bytes;
    group.flop += record.flop;
    group.seconds += seconds_of_work(record, device);
    const bool is_product = record.kind == cuda::WorkKind::product;
    group.blocks =
        std::max(group.blocks, is_product ? product_blocks(record.product, device) : record.blocks);
    if (is_product && group.blocks < device.multiprocessors)
      group.note = concat_text(group.blocks, " blocks for ", device.multiprocessors, " multiprocessors");
  }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  std::stable_sort(list.begin(), list.end(),
                   [](const Group& a, const Group& b) { return a.seconds > b.seconds; });
  return list;
}

// Returns the number of launches that one layer adds, or null for a model with one layer or with several
// attention kinds.
Report::Value launches_of_layer(const ModelChoice& choice, int64_t launches,
                                const std::function<DeviceWork(const ModelChoice&)>& count) {
  if (choice.model.encoder.layers < 2 || choice.model.encoder.attention.size() > 1) return std::monostate{};
  ModelChoice shallower = choice;
  --shallower.model.encoder.layers;
  return launches - count(shallower).launches();
}

Report run_device_cost(const BenchmarkArguments& arguments) {
  const OptionValues& options = arguments.options;
  const DeviceModel& model = device_model(options.get<std::string>("device-model"));
  const auto wanted = options.get<int64_t>("batch");
  ModelChoice choice = choose_model(arguments, wanted > 0 ? wanted : 10);
  if (wanted > 0) choice.batch = wanted;
  const bool decodes = options.get<std::string>("work") == "token";
  if (decodes) check_decodable(choice.model);
  const Device device = arguments.device;
  use_precision(choice.run, device);
  const auto count = [&](const ModelChoice& counted) {
    return decodes ? decoding_work(counted, counted.batch, device, model.memory_bytes)
                   : training_work(counted, device, model.memory_bytes);
  };
  const DeviceWork work = count(choice);
  double seconds = 0, seconds_at_peak = 0;
  for (const cuda::WorkRecord& record : work.records) {
    seconds += seconds_of_work(record, model);
    seconds_at_peak += record.flop / model.rate(record.type);
  }
  std::vector<Report> rows;
  for (const Group& group : groups_of(work, model))
    rows.push_back(Report()
                       .add("work", group.name)
                       .add("op", group.op)
                       .add("launches", group.launches)
                       .add("blocks", group.blocks)
                       .add("megabytes", static_cast<double>(group.bytes) / 1e6)
                       .add("gflop", group.flop / kGiga)
                       .add("microseconds", group.seconds * kMicro)
                       .add("share", group.seconds / seconds)
                       .add("note", group.note));
  const auto tokens = static_cast<double>(choice.batch * (decodes ? 1 : choice.model.max_length));
  return Report()
      .add("device_model", model.name)
      .add("source", model.source)
      .add("work", decodes ? "a decoded token of each sequence" : "a training step")
      .add("attention", kinds_text(choice.model.encoder.attention))
      .add("precision", choice.run.precision)
      .add("parameters", work.parameters)
      .add("batch", choice.batch)
      .add("length", choice.model.max_length)
      .add("launches", work.launches())
      .add("launches_per_layer", launches_of_layer(choice, work.launches(), count))
      .add("gigabytes", static_cast<double>(work.bytes()) / kGiga)
      .add("gflop", work.flop() / kGiga)
      .add("estimated_milliseconds", seconds * kMilli)
      .add("tokens_per_second", tokens / seconds)
      .add("sequences_per_second", tokens / static_cast<double>(choice.model.max_length) / seconds)
      .add("share_of_matrix_rate", seconds_at_peak / seconds)
      .add("share_of_memory_rate", static_cast<double>(work.bytes()) / model.bytes_per_second / seconds)
      .add("peak_bytes", work.peak_bytes)
      .add("launch_groups", rows);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const DeviceModel& device : device_models()) names.push_back(device.name);
  return names;
}

}  // namespace

Benchmark make_device_cost_benchmark() {
  std::vector<OptionSpec> options = model_option_specs();
  options.push_back({.name = "batch",
                     .default_value = int64_t{0},
                     .help = "sequences; 0: the batch size of --config, or 10",
                     .min = 0,
                     .max = 1 << 20});
  options.push_back(counted_work_option());
  options.push_back({.name = "device-model",
                     .default_value = std::string("h200"),
                     .help = "device model for the estimated times",
                     .choices = model_names()});
  return {
      .name = "device-cost",
      .summary =
          "launches, bytes and operations of a training step or of a decoded token on a CUDA device, with "
          "estimated times; the emulation of CUDA counts the work and computes nothing",
      .options = options,
      .run = run_device_cost,
      .counts_device = true};
}

}  // namespace tapeformer
