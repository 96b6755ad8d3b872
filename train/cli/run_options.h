// What the commands that use a trained model share: choosing the run, its checkpoint and the data to go with
// it, and pictures.
#pragma once

#include <filesystem>

#include "models/generation.h"
#include "train/cli/common.h"
#include "train/run.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// RUN, and the option --checkpoint.
Positional run_positional();
OptionSpec checkpoint_option();

// Return the option --allow-commands, and the DataAccess of a command line that has this option.
OptionSpec allow_commands_option();
DataAccess data_access(const CommandLine& line);

// Checks the device, then finds or loads the run that the command line names. `use` determines the keys that
// --set may change.
FoundRun find_run(const CommandLine& line, ConfigUse use);
LoadedRun load_run(const CommandLine& line, ConfigUse use);

// The first `limit` examples of a split (0: all), as the run's config describes the data.
std::shared_ptr<const Dataset> open_split(const LoadedRun& run, const std::string& split, int64_t limit,
                                          const CommandLine& line);

// --mode of drawing. "auto" is recurrent where the model's attention kind can be, and says so where it
// cannot.
OptionSpec mode_option();
// Throws ConfigError for "recurrent" with a kind that has no recurrent form.
GenerationMode generation_mode(const CommandLine& line, const AutoregressiveModel& model);
std::string name_of(GenerationMode mode);

// --out, or NAME-STEP.png among the run's samples. Its folder is made. Throws std::runtime_error when nothing
// can be written there, so that this is known before any work.
std::filesystem::path picture_path(const LoadedRun& run, const CommandLine& line, const std::string& name);
// A grid of the images (count, bytes) uint8; 0 columns: a near square.
void write_grid(const LoadedRun& run, const std::filesystem::path& path, const Tensor& images,
                int64_t columns);

}  // namespace tapeformer
