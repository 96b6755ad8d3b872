// A report on training runs. The report is one HTML page with a table of final results, curves, sample images
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
  std::string name;                          // path that was passed to read_reported_run()
  std::optional<Config> config;              // nullopt if config.toml cannot be read
  std::vector<MetricRecord> metrics;         // readable records of metrics.jsonl
  std::vector<std::string> damage_messages;  // messages about damaged lines and files
  // The PNG files in the folder `samples`, sorted by modification time. Contains only the latest four files.
  std::vector<std::filesystem::path> picture_paths;
  bool is_running = false;  // whether a process is currently training this run
};

// Reads a run directory. Lists damaged files in `damage_messages` instead of throwing an exception. Throws
// CheckpointError if the path is not a run directory.
ReportedRun read_reported_run(const std::string& path);

// Returns an HTML page that contains all pictures and needs no other files. If `refresh_seconds` is positive,
// browsers reload the page after this time.
std::string make_report_page(const std::vector<ReportedRun>& runs, int refresh_seconds = 0);

}  // namespace tapeformer
