// The metadata of the training data in checkpoints of speech models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/speech/dataset.h"

namespace tapeformer {

// The metadata that is needed to use a trained speech model without its training data.
struct SpeechMetadata {
  int64_t feature_dim = 0;  // number of features per frame, including deltas
  PhoneTable phone_table;
  std::optional<FeatureStatistics> global_statistics;  // defined only if data.cmvn = "global"
  int64_t max_frame_count = 0;                         // number of frames of the longest training utterance
};

std::string to_json(const SpeechMetadata& metadata);
// Returns the metadata from `task_json`, the text that to_json() returned. Throws CheckpointError if an entry
// is missing or invalid. The error message contains the name of the entry and `path`, the path of state.json.
SpeechMetadata parse_speech_metadata(const std::string& task_json, const std::string& path);

}  // namespace tapeformer
