// Checks of speech corpora before training. The checks report the file and line of each fault that would make
// training fail, and of each utterance that training would leave out.
#pragma once

#include <string>

#include "data/speech/verify.h"
#include "train/config/config.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// Returns the faults of the training, validation and test parts that training with this config reads.
// Sets *summary.
Faults find_speech_data_faults(const Config& config, const DataAccessOptions& data,
                               SpeechCheckSummary* summary = nullptr);

// Returns the faults of the speech corpus in `folder`. The folder must have the same layout as the data set
// that the config key data.dataset names. The config key data.path is ignored. If neither data.sample_rate
// nor data.resample is set, Kaldi corpora can have any rate, but all recordings must have the same rate. Sets
// *summary.
Faults find_speech_folder_faults(Config config, const std::filesystem::path& folder,
                                 const DataAccessOptions& data, SpeechCheckSummary* summary = nullptr);

}  // namespace tapeformer
