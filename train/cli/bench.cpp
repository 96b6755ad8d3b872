// The command "tapeformer bench": lists the benchmarks or runs one of them.
#include "train/bench/bench.h"

#include <algorithm>

#include "core/system/log.h"
#include "core/system/machine.h"
#include "train/cli/commands.h"
#include "train/distributed/processes.h"

namespace tapeformer {
namespace {

CommandSpec list_spec() {
  std::string names;
  std::vector<std::string> words = {"list"};
  for (const Benchmark& known : list_benchmarks()) {
    words.push_back(known.name);
    names += "  " + known.name + std::string(14 - std::min<size_t>(known.name.size(), 13), ' ') +
             known.summary + "\n";
  }
  return {.name = "bench",
          .summary = "Measures the speed and memory of parts of the program.",
          .positionals = {{.name = "NAME", .help = "a benchmark, or \"list\"", .suggestions = words}},
          .options = {},
          .details = "Benchmarks (\"tapeformer bench NAME --help\" explains one):\n" + names};
}

int print_benchmarks(const CommonOptions& common) {
  std::vector<Report> rows;
  for (const Benchmark& known : list_benchmarks())
    rows.push_back(Report().add("name", known.name).add("summary", known.summary));
  print_report(Report().add("benchmarks", rows), common);
  return 0;
}

bool is_benchmark(const std::string& name) {
  return std::any_of(list_benchmarks().begin(), list_benchmarks().end(),
                     [&](const Benchmark& known) { return known.name == name; });
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

int run_bench(const Arguments& arguments) {
  // Searches all words for the name of the benchmark, because options may precede it, and the benchmark
  // determines which options are valid.
  const auto chosen_name = std::find_if(arguments.begin(), arguments.end(), is_benchmark);
  if (chosen_name == arguments.end()) {
    const auto require = [](const std::string& name) {
      if (name != "list") find_benchmark(name);  // throws for an unknown name
    };
    if (!arguments.empty() && !arguments.front().starts_with("-")) require(arguments.front());
    const auto line = parse_command(list_spec(), arguments);
    if (!line) return 0;
    require(line->positionals.front());
    return print_benchmarks(line->common_options);
  }
  const Benchmark& chosen = find_benchmark(*chosen_name);
  if (!chosen.allow_multiple_processes) require_single_process("benchmark \"" + chosen.name + "\"");
  Arguments rest(arguments.begin(), chosen_name);
  rest.insert(rest.end(), chosen_name + 1, arguments.end());
  const auto line = parse_command({.name = "bench " + chosen.name,
                                   .summary = chosen.summary,
                                   .positionals = {},
                                   .options = chosen.options,
                                   .uses_config = has_option(chosen.options, "config"),
                                   .default_seed = chosen.default_seed},
                                  rest);
  if (!line) return 0;
  const BenchmarkArguments benchmark_arguments = make_benchmark_arguments(chosen, *line);
  if (!get_blas_info().uses_openmp())
    log_warning("OpenBLAS is not the OpenMP build, so its threads compete with the threads of Tapeformer");
  Report report;
  report.add("benchmark", chosen.name);
  const Report figures = run_benchmark(chosen, benchmark_arguments);
  for (const auto& [name, value] : figures.fields()) report.add(name, value);
  print_report(report, line->common_options);
  return 0;
}

}  // namespace tapeformer
