// Checks of corpora for training. They report each fault that training would refuse or leave out, with file
// and line.
#pragma once

#include <string>

#include "data/speech/verify.h"
#include "train/config/config.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// Returns the checks that follow from a config: sample rate, channel, length, lexicon and subsampling.
// Appends faults of the lexicon to `faults`.
SpeechChecks speech_checks(const Config& config, const DataAccess& data, Faults& faults);

// Returns the faults of the parts that training with this config reads.
Faults speech_config_problems(const Config& config, const DataAccess& data);

// Returns the faults of a folder with the layout of data.dataset. Ignores data.path of the config.
Faults speech_folder_problems(Config config, const std::filesystem::path& folder, const DataAccess& data);

}  // namespace tapeformer
