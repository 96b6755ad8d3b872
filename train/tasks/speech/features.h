// Computation of the features that a trained speech model reads, for a whole recording or for a stream.
//
// The functions in this file throw DataError if a recording is missing, invalid, silent or too short. The
// error message contains the name of the recording. The functions throw ConfigError if the number of features
// per frame is not SpeechMetadata::feature_dim.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/audio/audio.h"
#include "data/audio/filterbank.h"
#include "data/speech/feature_store.h"
#include "data/speech/features.h"
#include "train/tasks/speech/corpus.h"
#include "train/tasks/speech/description.h"

namespace tapeformer {

// Returns the options that do not depend on the model and on its training data.
SpeechDatasetOptions make_speech_dataset_options(const SpeechCorpus& corpus, bool training);
// Returns the value of data.cmvn of a corpus where SpeechCorpus::needs_whole_utterances() is true.
std::string describe_normalization(const SpeechCorpus& corpus);
// Returns metadata.global_statistics. Throws ConfigError if the model was trained without global statistics.
const FeatureStatistics& get_global_statistics(const SpeechMetadata& metadata);

// Returns the features of a recording, of shape (frames, dims). If the model was trained on the .mfc files of
// AN4, `path` must be a .mfc file instead of a recording.
Tensor compute_file_features(const SpeechCorpus& corpus, const SpeechMetadata& metadata,
                             const std::filesystem::path& path);

// A reader of a recording or a stream. The reader returns the rows of compute_file_features() in parts. The
// memory of the reader does not grow with the length of the recording, unless the features need the whole
// utterance or the file is a .mfc file. The reader is not thread-safe.
class FeatureStream {
 public:
  FeatureStream(const SpeechCorpus& corpus, const SpeechMetadata& metadata,
                const std::filesystem::path& path);
  // Throws ConfigError if the features need the whole utterance, or if the model was trained on .mfc files.
  FeatureStream(const SpeechCorpus& corpus, const SpeechMetadata& metadata, const AudioPipe& pipe);

  // Returns the next rows of features, of shape (rows, dims). The number of rows can be 0 before the end of
  // the recording. After the end of the recording, returns an undefined tensor.
  Tensor read_frames();

 private:
  // The stages that convert samples to rows of features, with the state of each stage.
  struct Pipeline {
    Pipeline(const FilterbankOptions& options, int64_t delta_order)
        : filterbank(options), filterbank_stream(filterbank), delta_stream(delta_order) {}
    Filterbank filterbank;
    FilterbankStream filterbank_stream;
    DeltaStream delta_stream;
    int64_t frame_count = 0;
    std::optional<float> first_sample;
    bool is_silent = true;  // whether all samples so far are equal
    bool divide_by_deviation = true;
  };
  void open_pipeline(const SpeechCorpus& corpus, const SpeechMetadata& metadata);
  // Throws DataError if the recording is shorter than a frame, or if all samples are equal.
  void check_recording() const;

  std::string stream_name_;
  Tensor whole_features_;
  std::optional<FeatureStatistics> global_statistics_;
  std::unique_ptr<AudioStream> audio_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace tapeformer
