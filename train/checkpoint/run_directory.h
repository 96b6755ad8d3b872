// Run directory of a training in progress, locked against other processes.
#pragma once

#include <filesystem>

#include "core/system/folder.h"
#include "train/config/config.h"

namespace tapeformer {

class RunDirectory {
 public:
  // Creates the folder if it does not exist and locks it. Throws ConfigError if another process trains in it.
  explicit RunDirectory(const std::filesystem::path& path);

  const Folder& folder() const { return folder_; }
  bool is_empty() const { return std::filesystem::is_empty(folder_.path()); }

  // Prepares the folder for a training that continues from `step` (0: a new run). Removes unfinished files of
  // a killed process and later records of metrics.jsonl, and writes config.toml. `evaluated`: whether `step`
  // has been evaluated. Throws CheckpointError if a file of the run is another kind of entry, such as a link
  // or a pipe.
  void prepare(const Config& config, int64_t step, bool evaluated) const;

 private:
  Folder folder_;
  FolderLock lock_;
};

// Throws ConfigError if the path of a run directory or a text of the config is not valid UTF-8, the encoding
// of a run's files. Without this check the first checkpoint would fail, after hours of training.
void require_utf8(const Config& config, const std::string& run_dir);

// Throws ConfigError, naming the keys, if a run with the config `now` cannot continue from a checkpoint in
// `folder` with the config `before`. Only keys for the length, the intervals, the device and the paths of a
// run may change.
void check_same_run(const Config& before, const Config& now, const std::string& folder);

}  // namespace tapeformer
