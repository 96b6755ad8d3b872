// The features of one recording as a trained model takes them: at once, or as they come.
//
// Errors: DataError with the file and the fault; ConfigError where the features are not those that the model
// was trained on.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/audio/audio.h"
#include "data/audio/filterbank.h"
#include "data/speech/feature_store.h"
#include "data/speech/features.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {

FeatureOptions feature_options(const Config& config, bool training);
Normalization normalization(const Config& config);
// Whether the features of a frame need frames that come long after it.
bool features_need_whole_utterance(const Config& config);
// Throws ConfigError where the model was trained without: those of another set would be another model's.
const FeatureStatistics& global_statistics(const SpeechDescription& description);

// (frames, dims): of a recording, or of a .mfc file for a model of AN4.
Tensor file_features(const Config& config, const SpeechDescription& description,
                     const std::filesystem::path& path);

// The rows of file_features as they come, in memory that does not grow with the recording; where features
// need the whole utterance, and of a .mfc file, all rows at once. The config must outlive it. One thread.
class FeatureStream {
 public:
  FeatureStream(const Config& config, const SpeechDescription& description,
                const std::filesystem::path& path);
  // Throws ConfigError where features need the whole utterance, and for a model of AN4.
  FeatureStream(const Config& config, const SpeechDescription& description, const AudioPipe& pipe);

  // The next rows, (rows, dims), perhaps none; undefined at the end.
  Tensor next();

 private:
  // The steps from samples to rows, and what they know of the samples so far.
  struct Steps {
    Steps(const FilterbankOptions& options, int64_t delta_order)
        : filterbank(options), frames(filterbank), deltas(delta_order) {}
    Filterbank filterbank;
    FilterbankStream frames;
    DeltaStream deltas;
    int64_t made = 0;  // frames
    std::optional<float> first;
    bool silent = true;
  };
  void open_steps(const SpeechDescription& description);
  void check_end() const;

  const Config& config_;
  std::string name_;
  Tensor whole_;
  std::optional<FeatureStatistics> global_;
  std::unique_ptr<AudioStream> audio_;
  std::unique_ptr<Steps> steps_;
};

}  // namespace tapeformer
