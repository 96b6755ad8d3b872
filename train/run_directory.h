// The run directory of a training that is under way: locked, and free of leftovers.
#pragma once

#include <filesystem>

#include "core/folder.h"
#include "train/config.h"

namespace tapeformer {

class RunDirectory {
 public:
  // Creates the folder if it is not there and locks it. Throws ConfigError if another process trains in it.
  explicit RunDirectory(const std::filesystem::path& path);

  const Folder& folder() const { return folder_; }
  bool is_empty() const { return std::filesystem::is_empty(folder_.path()); }

  // Gets the folder ready for a training that continues from `step`, 0 for a new run: removes what a killed
  // process left half-written, removes later records of metrics.jsonl and writes config.toml. `evaluated`:
  // whether the evaluation of the step is done. Throws CheckpointError if another kind of entry, such as a
  // link or a pipe, has the name of a file of the run.
  void prepare(const Config& config, int64_t step, bool evaluated) const;

 private:
  Folder folder_;
  FolderLock lock_;
};

}  // namespace tapeformer
