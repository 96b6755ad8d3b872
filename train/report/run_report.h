// A report on training runs. The report is an HTML page that contains final results, curves, sample images
// and configs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/metrics.h"

namespace tapeformer {

struct ReportedRun {
  std::string name;                          // argument of read_reported_run()
  std::optional<Config> config;              // nullopt if config.toml cannot be read
  std::vector<MetricRecord> metrics;         // valid records of metrics.jsonl
  std::vector<std::string> damage_messages;  // error messages about config.toml, metrics.jsonl and samples
  // Paths of the four most recent PNG files in the folder `samples` of the run directory, oldest first.
  std::vector<std::filesystem::path> picture_paths;
  bool is_running = false;  // whether a process is currently training this run
};

// Reads a run directory. If config.toml or metrics.jsonl is missing or damaged, or if a file in `samples`
// with the extension .png is not a PNG file, adds a message to `damage_messages` instead of throwing an
// exception. Throws CheckpointError if `path` contains neither config.toml nor metrics.jsonl.
ReportedRun read_reported_run(const std::string& path);

// Returns an HTML page that contains all pictures and needs no other files. If `refresh_seconds` is positive,
// browsers reload the page after `refresh_seconds` seconds.
std::string make_report_page(const std::vector<ReportedRun>& runs, int refresh_seconds = 0);

}  // namespace tapeformer
