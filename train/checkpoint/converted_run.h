// Runs that no training has written, such as runs with merged adapters.
#pragma once

#include <filesystem>
#include <string>

#include "train/checkpoint/checkpoint.h"

namespace tapeformer {

// Returns the path of a new run, whose last part is the name of the run. `argument` names it in messages, for
// example "RUN". Throws ConfigError if the path is no name of a folder, or exists.
std::filesystem::path check_new_run_path(const std::string& path, const std::string& argument);

// Writes a run with one checkpoint and its config.toml. The run appears whole or not at all. Throws
// CheckpointWriteError, FileError or std::filesystem::filesystem_error if it cannot be written.
void write_converted_run(const std::filesystem::path& run, const CheckpointContents& contents);

}  // namespace tapeformer
