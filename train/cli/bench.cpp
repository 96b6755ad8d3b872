// The command "tapeformer bench": lists the benchmarks or runs one of them.
#include "train/bench/bench.h"

#include <algorithm>

#include "core/system/log.h"
#include "core/system/machine.h"
#include "train/cli/commands.h"
#include "train/distributed/processes.h"

namespace tapeformer {
namespace {

CommandSpec make_list_spec() {
  std::string names;
  std::vector<std::string> words = {"list"};
  for (const Benchmark& known : list_benchmarks()) {
    words.push_back(known.name);
    names += "  " + known.name + std::string(14 - std::min<size_t>(known.name.size(), 13), ' ') +
             known.summary + "\n";
  }
  return {.summary = "Measures the speed and memory of parts of the program.",
          .positionals = {{.name = "NAME", .help = "a benchmark, or \"list\"", .suggestions = words}},
          .details = "Benchmarks (\"tapeformer bench NAME --help\" explains one):\n" + names};
}

int print_benchmarks(const CommonOptions& common) {
  std::vector<Report> rows;
  for (const Benchmark& known : list_benchmarks())
    rows.push_back(Report().add("name", known.name).add("summary", known.summary));
  print_report(Report().add("benchmarks", rows), common);
  return 0;
}

// Returns the device that the benchmark uses. Throws ConfigError if the benchmark measures only the CPU and
// --device names a CUDA device.
Device select_measured_device(const Benchmark& chosen, const CommonOptions& common) {
  if (chosen.accepts_device_option) return select_device(common);
  if (common.device == "auto")
    log_info("device cpu: benchmark \"", chosen.name, "\" measures the CPU only");
  else if (!choose_device(common.device).device.is_cpu())
    throw ConfigError("benchmark \"" + chosen.name + "\" measures the CPU, not " + common.device);
  return kCpu;
}

BenchmarkArguments make_benchmark_arguments(const Benchmark& chosen, const CommandLine& line) {
  return {.options = line.options,
          .device = select_measured_device(chosen, line.common_options),
          .overrides = make_config_overrides(line.common_options),
          .data_access = {line.common_options.data_dir, has_option(chosen.options, "allow-commands") &&
                                                            line.options.get<bool>("allow-commands")}};
}

}  // namespace

// Searches all words for the name of the benchmark, because options may precede it, and the benchmark
// determines which options are valid. Throws ConfigError if the first word names no benchmark.
CommandSpec make_bench_spec(const Arguments& words) {
  for (const std::string& word : words)
    for (const Benchmark& known : list_benchmarks())
      if (word == known.name)
        return {.summary = known.summary,
                .positionals = {{.name = known.name, .help = "this benchmark"}},
                .options = known.options,
                .uses_config = has_option(known.options, "config"),
                .default_seed = known.default_seed};
  if (!words.empty() && !words.front().starts_with("-") && words.front() != "list")
    find_benchmark(words.front());
  return make_list_spec();
}

int run_bench(const CommandLine& line) {
  const std::string& name = line.positionals.front();
  if (name == "list") return print_benchmarks(line.common_options);
  const Benchmark& chosen = find_benchmark(name);
  if (!chosen.allow_multiple_processes) require_single_process("benchmark \"" + name + "\"");
  const BenchmarkArguments benchmark_arguments = make_benchmark_arguments(chosen, line);
  if (!get_blas_info().uses_openmp())
    log_warning("OpenBLAS is not the OpenMP build, so its threads compete with the threads of Tapeformer");
  Report report;
  report.add("benchmark", chosen.name);
  const Report figures = run_benchmark(chosen, benchmark_arguments);
  for (const auto& [field, value] : figures.fields()) report.add(field, value);
  print_report(report, line.common_options);
  return 0;
}

}  // namespace tapeformer
