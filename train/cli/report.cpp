// The command "tapeformer report": writes a page with the curves, configs, samples and figures of runs.
#include <chrono>
#include <filesystem>
#include <thread>

#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/report/run_report.h"
#include "train/signals.h"

namespace tapeformer {
namespace {

// Reads the runs on the command line into `runs` and writes the page. Returns whether a run is still
// training.
bool write_page(const CommandLine& line, bool live, std::vector<ReportedRun>& runs) {
  runs.clear();
  bool running = false;
  for (const std::string& path : line.positionals) {
    runs.push_back(read_reported_run(path));
    running = running || runs.back().is_running;
  }
  const int refresh =
      live && running ? std::max(static_cast<int>(line.options.get<double>("interval")), 1) : 0;
  const std::filesystem::path out = line.options.get<std::string>("out");
  std::vector<std::filesystem::path> inputs;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto files = list_run_files(line.positionals[i]);
    inputs.insert(inputs.end(), files.begin(), files.end());
    inputs.insert(inputs.end(), runs[i].picture_paths.begin(), runs[i].picture_paths.end());
  }
  refuse_to_replace_inputs({out}, inputs);
  if (out.has_parent_path()) std::filesystem::create_directories(out.parent_path());
  replace_file(out.string(), make_report_page(runs, refresh));
  return running;
}

}  // namespace

CommandSpec make_report_spec(const Arguments& /*words*/) {
  return {.summary =
              "Writes one HTML page with the curves, configs, samples and final figures of runs. The page "
              "opens in any browser without a network.",
          .positionals = {{.name = "RUN", .help = "a run directory", .is_repeated = true}},
          .options = {{.name = "out",
                       .default_value = std::string("report.html"),
                       .help = "HTML file; missing folders are created"},
                      {.name = "live",
                       .default_value = false,
                       .help = "write the page again every few seconds, until the runs have ended"},
                      {.name = "interval",
                       .default_value = 10.0,
                       .help = "seconds between updates with --live",
                       .min = 0.1,
                       .max = 3600,
                       .used_if = {"live"}}}};
}

int run_report(const CommandLine& line) {
  const bool live = line.options.get<bool>("live");
  const std::chrono::duration<double> interval(line.options.get<double>("interval"));
  std::vector<ReportedRun> runs;
  while (write_page(line, live, runs) && live) std::this_thread::sleep_for(interval);
  std::vector<Report> rows;
  for (const ReportedRun& run : runs) {
    for (const std::string& problem : run.damage_messages) log_warning(problem);
    rows.push_back(Report()
                       .add("run", run.name)
                       .add("records", static_cast<int64_t>(run.metrics.size()))
                       .add("problems", run.damage_messages));
  }
  print_report(Report().add("out", line.options.get<std::string>("out")).add("runs", rows),
               line.common_options);
  return 0;
}

}  // namespace tapeformer
