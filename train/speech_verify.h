// Whether training would take a corpus: every fault that it would refuse, or leave out, by file and line.
#pragma once

#include <string>

#include "data/verify_speech.h"
#include "train/config.h"
#include "train/data_access.h"

namespace tapeformer {

// How training would read a corpus with this config: rate, channel, length, lexicon, steps of the model.
// Faults of the lexicon itself are added to the list.
SpeechChecks speech_checks(const Config& config, const DataAccess& data, Faults& faults);

// Every fault of the parts that training with this config reads.
Faults speech_config_problems(const Config& config, const DataAccess& data);

// Every fault of a folder in a layout that is a data set of the config. `config` gives all keys but
// data.path.
Faults speech_folder_problems(Config config, const std::filesystem::path& folder, const DataAccess& data);

}  // namespace tapeformer
