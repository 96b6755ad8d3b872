// The benchmark "kernel-accesses": a table of the memory accesses of emulated kernels.
#include "train/bench/kernel_accesses.h"

#include <algorithm>
#include <cstdio>

#include "train/bench/bench.h"

namespace tapeformer {
namespace {

AccessesByLaunch count_accesses(const std::function<void()>& step) {
  const AccessLog log;
  step();
  return log.launches();
}

// Returns the address of the instruction with the largest excess(counts), where `counts` are the access
// counts of the instruction. The address is a hexadecimal number that the program addr2line accepts. Returns
// "" if no instruction has a positive excess.
template <class F>
std::string find_worst_instruction(const LaunchSiteCounts& launch, F excess) {
  const auto worst =
      std::max_element(launch.counts_by_instruction.begin(), launch.counts_by_instruction.end(),
                       [&](const auto& a, const auto& b) { return excess(a.second) < excess(b.second); });
  if (worst == launch.counts_by_instruction.end() || excess(worst->second) <= 0) return "";
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(worst->first));
  return text;
}

double divide_or_zero(int64_t a, int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0;
}

Report make_access_row(const LaunchKey& key, const LaunchSiteCounts& launch) {
  const auto& [path, line, op] = key;
  const AccessCounts total = launch.total();
  Report row;
  row.add("kernel", concat_text(path.substr(path.rfind('/') + 1), ":", line))
      .add("op", op)
      .add("launches", launch.launch_count)
      .add("requests", total.requests)
      .add("sectors", total.sectors)
      .add("sectors_per_request", divide_or_zero(total.sectors, total.requests))
      .add("least_sectors_per_request", divide_or_zero(total.min_sectors, total.requests));
  for (size_t i = 0; i < kAccessWidthCount; ++i) row.add(concat_text("bytes_by_", 1 << i), total.bytes[i]);
  return row.add("written_bytes", total.written_bytes)
      .add("shared_requests", total.shared_requests)
      .add("conflicts_per_request", divide_or_zero(total.conflicts(), total.shared_requests))
      .add("worst_access",
           find_worst_instruction(
               launch, [](const AccessCounts& counts) { return counts.sectors - counts.min_sectors; }))
      .add("worst_shared_access",
           find_worst_instruction(launch, [](const AccessCounts& counts) { return counts.conflicts(); }));
}

Report run_kernel_accesses(const BenchmarkArguments& arguments) {
  const OptionValues& options = arguments.options;
  BenchmarkedModel choice = choose_model(arguments, options.get<int64_t>("batch"));
  choice.batch_size = options.get<int64_t>("batch");
  const bool decodes = options.get<std::string>("work") == "token";
  if (decodes) check_decodable(choice.model);
  apply_precision(choice.run, arguments.device);
  const AccessesByLaunch accesses = decodes
                                        ? count_decoding_accesses(choice, choice.batch_size, arguments.device)
                                        : count_training_accesses(choice, arguments.device);
  std::vector<std::pair<int64_t, Report>> rows;
  AccessCounts total;
  for (const auto& [key, launch] : accesses) {
    rows.emplace_back(launch.total().sectors, make_access_row(key, launch));
    total += launch.total();
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Report> kernels;
  for (auto& [sectors, row] : rows) kernels.push_back(std::move(row));
  return Report()
      .add("work", decodes ? "a decoded token of each sequence" : "a training step")
      .add("attention", join_kind_names(choice.model.encoder.attention))
      .add("precision", choice.run.precision)
      .add("batch", choice.batch_size)
      .add("length", choice.model.max_length)
      .add("requests", total.requests)
      .add("sectors", total.sectors)
      .add("least_sectors", total.min_sectors)
      .add("shared_requests", total.shared_requests)
      .add("shared_conflicts", total.conflicts())
      .add("kernels", kernels);
}

}  // namespace

AccessesByLaunch count_training_accesses(const BenchmarkedModel& choice, Device device) {
  AccessesByLaunch accesses;
  call_with_training_step(choice, device, [&](const std::function<void()>& step, const Module&) {
    accesses = count_accesses(step);
  });
  return accesses;
}

AccessesByLaunch count_decoding_accesses(const BenchmarkedModel& choice, int64_t batch, Device device) {
  AccessesByLaunch accesses;
  call_with_decoding_step(choice, batch, device, [&](const std::function<void()>& step, const Module&) {
    accesses = count_accesses(step);
  });
  return accesses;
}

Benchmark make_kernel_accesses_benchmark() {
  std::vector<OptionSpec> options = make_model_option_specs();
  for (OptionSpec& option : options) {  // small defaults, because emulated kernels are slow
    if (option.name == "layers") option.default_value = int64_t{1};
    if (option.name == "length") option.default_value = int64_t{128};
  }
  options.push_back(
      {.name = "batch", .default_value = int64_t{2}, .help = "sequences", .min = 1, .max = 1 << 20});
  options.push_back(make_work_option());
  return {.name = "kernel-accesses",
          .summary =
              "memory accesses of emulated kernels: bytes by width, sectors per request and conflicts in "
              "shared memory; needs the program tapeformer_accesses",
          .options = options,
          .run = run_kernel_accesses,
          .counts_device_work = true};
}

}  // namespace tapeformer
