// Checks whether training accepts a corpus. Faults that training would refuse or leave out have file and
// line.
#pragma once

#include <string>

#include "data/speech/verify.h"
#include "train/config/config.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// Returns the checks that follow from a config: rate, channel, length, lexicon, steps of the model. Appends
// faults of the lexicon to `faults`.
SpeechChecks speech_checks(const Config& config, const DataAccess& data, Faults& faults);

// Returns every fault of the parts that training with this config reads.
Faults speech_config_problems(const Config& config, const DataAccess& data);

// Returns every fault of a folder in the layout of data.dataset. data.path of the config is ignored.
Faults speech_folder_problems(Config config, const std::filesystem::path& folder, const DataAccess& data);

}  // namespace tapeformer
