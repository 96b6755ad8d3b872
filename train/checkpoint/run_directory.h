// The run directory of a training run in progress. A lock prevents training by other processes in the
// directory.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/errors.h"
#include "core/system/folder.h"
#include "train/config/config.h"

namespace tapeformer {

// The exception that is thrown if a training run cannot use a run directory. Commands catch it and append
// advice to its text, such as the option --resume.
class RunDirectoryError : public ConfigError {
 public:
  enum class Reason {
    not_empty,           // a new run requires an empty directory
    locked,              // another process trains in the directory
    invalid_path,        // the path is not valid UTF-8
    different_settings,  // the config and the config of the checkpoint differ in a key that must not change
  };
  RunDirectoryError(Reason reason, const std::string& text) : ConfigError(text), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

class RunDirectory {
 public:
  // Creates the folder if it does not exist, and locks it. Throws RunDirectoryError if another process trains
  // in the folder.
  explicit RunDirectory(const std::filesystem::path& path);

  const Folder& folder() const { return folder_; }
  // Throws RunDirectoryError if the folder is not empty.
  void require_empty() const;

  // Prepares the folder for a training run that continues from `step`. For a new run, `step` is 0. Removes
  // the unfinished files of a killed process, and writes config.toml. Removes the records of later steps from
  // metrics.jsonl. If `evaluated` is false, also removes the record of the evaluation at `step`, because the
  // run repeats the evaluation.
  //
  // Throws CheckpointError if config.toml or metrics.jsonl exists and is not a regular file, or if
  // `checkpoints` exists and is not a folder.
  void prepare(const Config& config, int64_t step, bool evaluated) const;

 private:
  Folder folder_;
  FolderLock lock_;
};

// Checks the encoding of the texts that a run writes, so that saving a checkpoint does not fail later. Throws
// RunDirectoryError if the path of the run directory is not valid UTF-8, and ConfigError if a text of the
// config is not valid UTF-8.
void require_utf8(const Config& config, const std::string& run_dir);

// Returns the run directory of a checkpoint, or "" for a checkpoint outside of a run directory.
std::filesystem::path find_run_folder(const std::filesystem::path& checkpoint);

// Throws RunDirectoryError if the configs `saved` and `current` differ in a key that must not change on
// resume. `saved` is the config of the checkpoint in `folder`, and `current` is the config of the run that
// continues from this checkpoint. The message lists the keys with both values.
void check_resume_config(const Config& saved, const Config& current, const std::string& folder);

}  // namespace tapeformer
