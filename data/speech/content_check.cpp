#include "data/speech/content_check.h"

#include <set>

#include "core/base/errors.h"
#include "core/base/frames.h"
#include "core/options/option_names.h"
#include "data/audio/audio.h"

namespace tapeformer {

UtteranceChecker::UtteranceChecker(SpeechCheckOptions options) : options_(std::move(options)) {
  if (!options_.infer_sample_rate) filterbank_.emplace(options_.feature_options.filterbank);
}

Faults UtteranceChecker::operator()(const Utterance& utterance) {
  Faults faults;
  Words phones;
  run_and_collect_fault(&faults, [&] { phones = look_up_phones(utterance); });
  run_and_collect_fault(&faults, [&] { check_lengths(phones, check_audio(utterance)); });
  return faults;
}

Words UtteranceChecker::look_up_phones(const Utterance& utterance) const {
  if (!utterance.phones.empty()) return utterance.phones;
  if (!options_.lexicon) return options_.words_are_phones ? utterance.words : Words();
  std::set<std::string> unknown;
  Words phones = options_.lexicon->look_up_phones(utterance.words, unknown);
  std::string text;
  for (const std::string& word : unknown) text += " \"" + word + "\"";
  if (!text.empty()) throw DataError("the lexicon lacks" + text);
  return phones;
}

void UtteranceChecker::check_lengths(const Words& phones, int64_t frames) const {
  if (options_.max_frames > 0 && frames > options_.max_frames)
    throw DataError(concat_text(frames, " frames are more than the maximum of the model, ",
                                name_option("SpeechCheckOptions::max_frames"), " = ", options_.max_frames));
  if (options_.subsampling == 0) return;
  auto needed = static_cast<int64_t>(phones.size());
  for (size_t i = 1; i < phones.size(); ++i) needed += phones[i] == phones[i - 1];
  if (const int64_t steps = count_subsampled_steps(frames, options_.subsampling); steps < needed)
    throw DataError(concat_text(frames, " frames make ", steps, " steps of the model, fewer than the ",
                                needed, " that CTC needs for its ", phones.size(), " labels"));
}

int64_t UtteranceChecker::check_audio(const Utterance& utterance) {
  return call_with_recording(utterance, [&](const std::filesystem::path& path) {
    Utterance file = utterance;
    file.command.clear();
    file.path = path;
    return check_file(file);
  });
}

int64_t UtteranceChecker::check_file(const Utterance& utterance) {
  const std::string name = utterance.path.string();
  FilterbankOptions& bank = options_.feature_options.filterbank;
  if (utterance.source == SpeechSource::audio) {
    // If the header of a recording does not contain the length, read_audio_info() counts samples. The limit
    // saves time, because only the rate is needed.
    const AudioInfo info = read_audio_info(utterance.path, 1);
    if (!filterbank_) {
      bank.rate = info.rate;
      filterbank_.emplace(bank);
    }
    has_recordings_ = true;
    if (options_.infer_sample_rate && info.rate != bank.rate) {
      have_rates_differed_ = true;
      throw DataError(
          concat_text(name, ": ", info.rate, " samples per second, the first recording has ", bank.rate));
    }
  } else if (!filterbank_) {
    filterbank_.emplace(bank);
  }
  const Tensor features =
      compute_features(utterance, options_.feature_options, *filterbank_, 0, &cuts_.emplace_back());
  const int64_t dims = features.size(1);
  if (dims_ == 0) dims_ = dims;
  if (dims != dims_)
    throw DataError(concat_text(name, ": features of ", dims, " dims, the first utterance has ", dims_));
  return features.size(0);
}

}  // namespace tapeformer
