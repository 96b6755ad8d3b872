#include "train/tasks/speech/features.h"

#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "data/sets/catalogue.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

bool takes_mfc(const Config& config) {
  return require_catalogue_entry(config.data.dataset).sample_rate == 0;
}

void require_dims(const std::string& name, int64_t dims, const SpeechMetadata& metadata) {
  if (dims != metadata.feature_dim)
    throw ConfigError(concat_text(name, ": features of ", dims, " dims, but the model was trained on ",
                                  metadata.feature_dim));
}

// Returns the audio options of a stream. The options do not limit the length of the stream, because the
// memory of a FeatureStream does not grow with this length.
AudioOptions make_unlimited_audio_options(const Config& config) {
  AudioOptions options = make_feature_options(config, false).make_audio_options();
  options.max_seconds = 0;
  return options;
}

}  // namespace

SpeechDataOptions get_speech_options(const Config& config) {
  return read_speech_options(config.data.all_options());
}

FeatureOptions make_feature_options(const Config& config, bool training) {
  const SpeechDataOptions d = get_speech_options(config);
  FeatureOptions options;
  const int64_t rate =
      d.sample_rate > 0 ? d.sample_rate : require_catalogue_entry(config.data.dataset).sample_rate;
  if (rate > 0) options.filterbank.rate = rate;
  options.filterbank.bins = d.num_mel_bins;
  options.filterbank.dither = training ? d.dither : 0;
  options.resample = d.resample;
  if (d.channel >= 0) options.channel = d.channel;
  options.max_seconds = d.max_seconds;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.cache_folder = d.feature_cache;
  return options;
}

Normalization make_normalization(const Config& config) {
  const std::string name = get_speech_options(config).cmvn;
  if (name == "none") return Normalization::none;
  if (name == "speaker") return Normalization::speaker;
  return name == "global" ? Normalization::global : Normalization::utterance;
}

bool features_need_whole_utterance(const Config& config) {
  const Normalization kind = make_normalization(config);
  return kind == Normalization::utterance || kind == Normalization::speaker;
}

const FeatureStatistics& get_global_statistics(const SpeechMetadata& metadata) {
  if (!metadata.global_statistics)
    throw ConfigError(
        "data.cmvn = \"global\" needs the statistics of the training set, which this model was trained "
        "without");
  return *metadata.global_statistics;
}

Tensor compute_file_features(const Config& config, const SpeechMetadata& metadata, const fs::path& path) {
  const FeatureOptions options = make_feature_options(config, false);
  const bool is_mfc = path.extension() == ".mfc";
  require_regular_file(path);
  if (is_mfc != takes_mfc(config))
    throw DataError(path.string() + (takes_mfc(config)
                                         ? ": the model was trained on the features of AN4: give .mfc files"
                                         : ": the model was trained on recordings: give audio files"));
  Utterance utterance;
  utterance.id = path.stem().string();
  utterance.path = path;
  utterance.source = is_mfc ? SpeechSource::mfc : SpeechSource::audio;
  const Tensor features = compute_features(utterance, options, Filterbank(options.filterbank));
  const SpeechDataOptions d = get_speech_options(config);
  require_dims(path.string(), features.size(1) * (d.deltas + 1), metadata);
  const Normalization kind = make_normalization(config);
  if (kind != Normalization::none) {
    FeatureStatistics own;
    own.add(features);
    normalize_features(features, kind == Normalization::global ? get_global_statistics(metadata) : own,
                       d.cmvn_variance);
  }
  return d.deltas > 0 ? add_deltas(features, d.deltas) : features;
}

FeatureStream::FeatureStream(const Config& config, const SpeechMetadata& metadata, const fs::path& path)
    : config_(config), stream_name_(path.string()) {
  if (features_need_whole_utterance(config) || takes_mfc(config) || path.extension() == ".mfc") {
    whole_features_ = compute_file_features(config, metadata, path);
    return;
  }
  open_pipeline(metadata);
  audio_ = std::make_unique<AudioStream>(path, make_unlimited_audio_options(config));
}

FeatureStream::FeatureStream(const Config& config, const SpeechMetadata& metadata, const AudioPipe& pipe)
    : config_(config), stream_name_(pipe.name) {
  if (features_need_whole_utterance(config))
    throw ConfigError("data.cmvn = \"" + get_speech_options(config).cmvn +
                      "\" needs the whole recording, which " + stream_name_ +
                      " does not give; train with \"global\" or \"none\", or name a file");
  if (takes_mfc(config))
    throw ConfigError("the model was trained on the features of AN4, which " + stream_name_ +
                      " cannot give: name .mfc files");
  open_pipeline(metadata);
  audio_ = std::make_unique<AudioStream>(pipe, make_unlimited_audio_options(config));
}

void FeatureStream::open_pipeline(const SpeechMetadata& metadata) {
  if (make_normalization(config_) == Normalization::global)
    global_statistics_ = get_global_statistics(metadata);
  const FilterbankOptions options = make_feature_options(config_, false).filterbank;
  const int64_t deltas = get_speech_options(config_).deltas;
  require_dims(stream_name_, options.dims() * (deltas + 1), metadata);
  pipeline_ = std::make_unique<Pipeline>(options, deltas);
  pipeline_->divide_by_deviation = get_speech_options(config_).cmvn_variance;
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
