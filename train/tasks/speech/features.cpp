#include "train/tasks/speech/features.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

void require_dims(const std::string& name, int64_t dims, const SpeechMetadata& metadata) {
  if (dims != metadata.feature_dim)
    throw ConfigError(concat_text(name, ": features of ", dims, " dims, but the model was trained on ",
                                  metadata.feature_dim));
}

// Returns the audio options of a stream. The options do not limit the length of the stream, because the
// memory of a FeatureStream does not grow with this length.
AudioOptions make_unlimited_audio_options(const SpeechCorpus& corpus) {
  AudioOptions options = corpus.make_feature_options(false).make_audio_options();
  options.max_seconds = 0;
  return options;
}

}  // namespace

std::string describe_normalization(const SpeechCorpus& corpus) {
  return corpus.options().normalization == Normalization::speaker ? "speaker" : "utterance";
}

SpeechDatasetOptions make_speech_dataset_options(const SpeechCorpus& corpus, bool training) {
  const SpeechDataOptions& options = corpus.options();
  return {.feature_options = corpus.make_feature_options(training),
          .normalization = options.normalization,
          .normalize_variance = options.normalize_variance,
          .delta_order = options.deltas,
          .reject_faulty_utterances = options.reject_faulty_utterances,
          .purpose = training ? SpeechPurpose::training : SpeechPurpose::scoring};
}

const FeatureStatistics& get_global_statistics(const SpeechMetadata& metadata) {
  if (!metadata.global_statistics)
    throw ConfigError(
        "data.cmvn = \"global\" needs the statistics of the training set, which this model was trained "
        "without");
  return *metadata.global_statistics;
}

Tensor compute_file_features(const SpeechCorpus& corpus, const SpeechMetadata& metadata,
                             const fs::path& path) {
  const FeatureOptions options = corpus.make_feature_options(false);
  const bool is_mfc = path.extension() == ".mfc";
  require_regular_file(path);
  if (is_mfc != corpus.has_mfc_files())
    throw DataError(path.string() + (corpus.has_mfc_files()
                                         ? ": the model was trained on the features of AN4: give .mfc files"
                                         : ": the model was trained on recordings: give audio files"));
  Utterance utterance;
  utterance.id = path.stem().string();
  utterance.path = path;
  utterance.source = is_mfc ? SpeechSource::mfc : SpeechSource::audio;
  const Tensor features = compute_features(utterance, options, Filterbank(options.filterbank));
  const SpeechDataOptions& d = corpus.options();
  require_dims(path.string(), features.size(1) * (d.deltas + 1), metadata);
  const Normalization kind = d.normalization;
  if (kind != Normalization::none) {
    FeatureStatistics own;
    own.add(features);
    normalize_features(features, kind == Normalization::global ? get_global_statistics(metadata) : own,
                       d.normalize_variance);
  }
  return d.deltas > 0 ? add_deltas(features, d.deltas) : features;
}

FeatureStream::FeatureStream(const SpeechCorpus& corpus, const SpeechMetadata& metadata, const fs::path& path)
    : stream_name_(path.string()) {
  if (corpus.needs_whole_utterances() || corpus.has_mfc_files() || path.extension() == ".mfc") {
    whole_features_ = compute_file_features(corpus, metadata, path);
    return;
  }
  open_pipeline(corpus, metadata);
  audio_ = std::make_unique<AudioStream>(path, make_unlimited_audio_options(corpus));
}

FeatureStream::FeatureStream(const SpeechCorpus& corpus, const SpeechMetadata& metadata,
                             const AudioPipe& pipe)
    : stream_name_(pipe.name) {
  if (corpus.needs_whole_utterances())
    throw ConfigError("data.cmvn = \"" + describe_normalization(corpus) +
                      "\" needs the whole recording, which " + stream_name_ +
                      " does not give; train with \"global\" or \"none\", or name a file");
  if (corpus.has_mfc_files())
    throw ConfigError("the model was trained on the features of AN4, which " + stream_name_ +
                      " cannot give: name .mfc files");
  open_pipeline(corpus, metadata);
  audio_ = std::make_unique<AudioStream>(pipe, make_unlimited_audio_options(corpus));
}

void FeatureStream::open_pipeline(const SpeechCorpus& corpus, const SpeechMetadata& metadata) {
  const SpeechDataOptions& data = corpus.options();
  if (data.normalization == Normalization::global) global_statistics_ = get_global_statistics(metadata);
  const FilterbankOptions options = corpus.make_feature_options(false).filterbank;
  require_dims(stream_name_, options.dims() * (data.deltas + 1), metadata);
  pipeline_ = std::make_unique<Pipeline>(options, data.deltas);
  pipeline_->divide_by_deviation = data.normalize_variance;
}

Tensor FeatureStream::read_frames() {
  if (!audio_) return std::exchange(whole_features_, {});
  Pipeline& s = *pipeline_;
  const std::span<const float> samples = audio_->next();
  if (!s.first_sample && !samples.empty()) s.first_sample = samples.front();
  s.is_silent = s.is_silent &&
                std::all_of(samples.begin(), samples.end(), [&](float x) { return x == *s.first_sample; });
  const bool last = samples.empty();
  const Tensor frames = last ? s.filterbank_stream.finish() : s.filterbank_stream.push(samples);
  if (const int64_t bad = find_non_finite_frame(frames); bad >= 0)
    throw DataError(
        concat_text(stream_name_, ": frame ", s.frame_count + bad, " has a value that is not finite"));
  s.frame_count += frames.size(0);
  if (last) {
    check_recording();
    audio_.reset();
  }
  if (global_statistics_) normalize_features(frames, *global_statistics_, s.divide_by_deviation);
  return s.delta_stream.push(frames, last);
}

void FeatureStream::check_recording() const {
  const Pipeline& s = *pipeline_;
  if (s.frame_count == 0)
    throw DataError(concat_text(stream_name_, ": ", s.filterbank_stream.sample_count(),
                                " samples are less than a frame"));
  if (s.is_silent) throw DataError(stream_name_ + ": is silent: all samples are equal");
}

}  // namespace tapeformer
