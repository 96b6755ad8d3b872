// The metadata of the training data in checkpoints of speech models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/speech/dataset.h"

namespace tapeformer {

// The metadata of the training data that is needed to use a trained model. state.json contains this metadata.
struct SpeechMetadata {
  int64_t feature_dim = 0;  // number of features per frame, including deltas
  PhoneTable phone_table;
  std::optional<FeatureStatistics> global_statistics;  // defined only if data.cmvn = "global"
  int64_t max_frame_count = 0;  // number of frames of the longest training utterance; 0: unknown
};

// The next two functions convert the metadata to and from the JSON object TrainingState::task_json. `path`
// is the path of state.json, for messages. parse_speech_metadata() throws CheckpointError with the path
// and the entry.
std::string to_json(const SpeechMetadata& metadata);
SpeechMetadata parse_speech_metadata(const std::string& task_json, const std::string& path);

}  // namespace tapeformer
