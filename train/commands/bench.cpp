// tapeformer bench: lists the benchmarks and runs one.
#include "train/bench/bench.h"

#include <algorithm>

#include "core/log.h"
#include "core/machine.h"
#include "train/commands/commands.h"

namespace tapeformer {
namespace {

CommandSpec list_spec() {
  std::string names;
  for (const Benchmark& known : benchmarks())
    names += "  " + known.name + std::string(14 - std::min<size_t>(known.name.size(), 13), ' ') +
             known.summary + "\n";
  return {.name = "bench",
          .summary = "Measures the speed and the memory of parts of the program.",
          .positionals = {{"NAME", "a benchmark, or \"list\""}},
          .options = {},
          .details = "Benchmarks (\"tapeformer bench NAME --help\" explains one):\n" + names};
}

int list_benchmarks(const CommonOptions& common) {
  std::vector<Report> rows;
  for (const Benchmark& known : benchmarks())
    rows.push_back(Report().add("name", known.name).add("summary", known.summary));
  print_report(Report().add("benchmarks", rows), common);
  return 0;
}

bool takes_config(const Benchmark& chosen) {
  return std::any_of(chosen.options.begin(), chosen.options.end(),
                     [](const OptionSpec& option) { return option.name == "config"; });
}

}  // namespace

int run_bench(const Arguments& arguments) {
  // The name decides which options there are.
  const bool named = !arguments.empty() && !arguments.front().starts_with("-");
  if (!named || arguments.front() == "list") {
    const auto line = parse_command(list_spec(), arguments);
    return line ? list_benchmarks(line->common) : 0;
  }
  const Benchmark& chosen = benchmark(arguments.front());
  const auto line = parse_command({.name = "bench " + chosen.name,
                                   .summary = chosen.summary,
                                   .positionals = {},
                                   .options = chosen.options,
                                   .uses_config = takes_config(chosen)},
                                  {arguments.begin() + 1, arguments.end()});
  if (!line) return 0;
  if (chosen.on_devices)
    use_device(line->common);
  else if (line->common.device == "auto")
    log_info("device cpu: benchmark \"", chosen.name, "\" measures it alone");
  else if (!device_of(*line).is_cpu())
    throw ConfigError("benchmark \"" + chosen.name + "\" measures the CPU, not " + line->common.device);
  if (!blas_info().shares_threads()) log_warning("OpenBLAS is not the OpenMP build; figures will be poor");
  Report report;
  report.add("benchmark", chosen.name);
  const Report figures = chosen.run(*line);
  for (const auto& [name, value] : figures.fields()) report.add(name, value);
  print_report(report, line->common);
  return 0;
}

}  // namespace tapeformer
