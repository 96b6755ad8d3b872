#include "data/speech/dataset.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/frames.h"
#include "core/system/log.h"
#include "data/files/faults.h"

namespace tapeformer {

namespace {

// Returns a corpus of the utterances to read and, for each of these utterances, whether it belongs to the
// data set. If options.limit is positive, at most options.limit utterances belong to the data set. With
// Normalization::speaker, all other utterances of the speakers in the data set are also read, because the
// statistics of a speaker use all utterances of the speaker.
std::pair<Corpus, std::vector<bool>> limit_corpus(const Corpus& corpus, const SpeechDatasetOptions& options) {
  const size_t count = corpus.utterances.size(), limit = static_cast<size_t>(options.limit);
  if (limit == 0 || limit >= count) return {corpus, std::vector<bool>(count, true)};
  std::vector<bool> all_chosen(count, false), chosen;
  std::set<std::string> speakers;
  for (size_t i = 0; i < limit; ++i) {
    all_chosen[i * count / limit] = true;
    if (options.normalization == Normalization::speaker)
      speakers.insert(corpus.utterances[i * count / limit].speaker);
  }
  Corpus part{corpus.name, {}};
  for (size_t i = 0; i < count; ++i) {
    if (!all_chosen[i] && !speakers.contains(corpus.utterances[i].speaker)) continue;
    part.utterances.push_back(corpus.utterances[i]);
    chosen.push_back(all_chosen[i]);
  }
  return {part, chosen};
}

}  // namespace

SpeechDataset::SpeechDataset(const Corpus& corpus, PhoneTable phones, SpeechDatasetOptions options)
    : phone_table_(std::move(phones)), options_(std::move(options)) {
  if (options_.subsampling < 1 || options_.delta_order < 0 || options_.delta_order > 2 || options_.limit < 0)
    throw ConfigError(
        "speech: expected subsampling of at least 1, delta_order of 0 to 2 and a limit of at least 0");
  const auto [part, chosen] = limit_corpus(corpus, options_);
  store_ = std::make_shared<const FeatureStore>(part, options_.feature_options);
  if (options_.feature_options.filterbank.dither > 0)
    filterbank_.emplace(options_.feature_options.filterbank);
  make_examples(part, chosen);
  if (report_.utterance_count == 0) {
    const int64_t short_count = static_cast<int64_t>(report_.too_short_ids.size());
    throw_with_faults(
        concat_text(corpus.name, ": none of the ", chosen.size() + static_cast<size_t>(corpus.dropped_count),
                    " utterances can be used",
                    corpus.dropped_count == 0
                        ? ""
                        : concat_text("; ", corpus.dropped_count, " have words that the lexicon lacks"),
                    short_count == 0 ? "" : concat_text("; ", short_count, " are shorter than their labels")),
        report_.faults);
  }
  gather_statistics(corpus.name);
  std::erase_if(examples_, [](const Example& example) { return !example.is_chosen; });
}

// Throws DataError if the utterance has no usable audio or labels.
SpeechDataset::Example SpeechDataset::make_example(const Utterance& utterance, int64_t store_index,
                                                   bool is_chosen) {
  if (!utterance.fault.empty()) throw DataError(utterance.fault);
  if (!store_->error(store_index).empty()) throw DataError(store_->error(store_index));
  if (utterance.phones.empty()) throw DataError("has no labels");
  const bool scoring = options_.purpose == SpeechPurpose::scoring;
  const bool known = !scoring || std::all_of(utterance.phones.begin(), utterance.phones.end(),
                                             [&](const auto& phone) { return phone_table_.contains(phone); });
  const auto labels = known ? phone_table_.get_class_indices(utterance.phones) : std::vector<int64_t>();
  const bool fits = count_subsampled_steps(store_->frame_count(store_index), options_.subsampling) >=
                    count_min_ctc_steps(known ? labels : std::vector<int64_t>(utterance.phones.size()));
  return {utterance, labels, store_index, 0, is_chosen, known && fits};
}

void SpeechDataset::make_examples(const Corpus& corpus, const std::vector<bool>& chosen) {
  Faults unusable;
  for (int64_t i = 0; i < store_->size(); ++i) {
    const Utterance& utterance = corpus.utterances[static_cast<size_t>(i)];
    const bool selected = chosen[static_cast<size_t>(i)];
    try {
      Example example = make_example(utterance, i, selected);
      const bool unseen = example.labels.empty();
      if (selected && unseen)
        for (const std::string& phone : utterance.phones)
          if (!phone_table_.contains(phone)) report_.unseen_phones.insert(phone);
      if (selected && !unseen && !example.is_alignable) report_.too_short_ids.push_back(utterance.id);
      if (!example.is_alignable && options_.purpose == SpeechPurpose::training) continue;
      examples_.push_back(std::move(example));
      if (!selected) continue;
      ++report_.utterance_count;
      report_.frame_count += store_->frame_count(i);
      report_.label_count += static_cast<int64_t>(utterance.phones.size());
    } catch (const DataError& error) {
      if (!selected) continue;
      report_.faults.push_back(utterance.id + ": " + error.what());
      if (options_.reject_faulty_utterances) throw DataError(corpus.name + ": " + report_.faults.back());
      unusable.push_back(report_.faults.back());
    }
  }
  if (report_.utterance_count == 0) return;  // the constructor throws an error with the faults
  for (const std::string& line : select_faults_to_show(unusable))
    log_warning(corpus.name, ": left out: ", line);
  if (!report_.too_short_ids.empty() && options_.purpose == SpeechPurpose::training)
    log_warning(corpus.name, ": left out ", report_.too_short_ids.size(),
                " utterances shorter than their labels");
}

// Adds the features to the statistics in the order of the utterances, because floating-point sums depend on
// the order of the terms.
void SpeechDataset::gather_statistics(const std::string& corpus_name) {
  if (options_.normalization == Normalization::global && options_.global_statistics) {
    global_statistics_ = *options_.global_statistics;
    if (static_cast<int64_t>(global_statistics_.sums.size()) != store_->dims())
      throw ConfigError(concat_text(corpus_name, ": features of ", store_->dims(),
                                    " dims, but the statistics of the training set are of ",
                                    global_statistics_.sums.size()));
    statistics_ = {global_statistics_};
  } else if (options_.normalization == Normalization::global ||
             options_.normalization == Normalization::speaker) {
    std::map<std::string, int64_t> indices;
    for (Example& example : examples_) {
      const std::string group =
          options_.normalization == Normalization::speaker ? example.utterance.speaker : "";
      const auto [index, added] = indices.emplace(group, static_cast<int64_t>(statistics_.size()));
      if (added) statistics_.emplace_back();
      example.statistics_index = index->second;
      statistics_[static_cast<size_t>(example.statistics_index)].add(store_->features(example.store_index));
    }
    if (options_.normalization == Normalization::global) global_statistics_ = statistics_.front();
  }
}

Tensor SpeechDataset::features(int64_t i, int64_t epoch) const {
  check(i >= 0 && i < size(), "speech", "utterance ", i, " of ", size());
  const bool new_noise = epoch > 0 && filterbank_ && example(i).utterance.source == SpeechSource::audio;
  const Tensor features =
      new_noise ? compute_features(example(i).utterance, options_.feature_options, *filterbank_, epoch)
                : store_->features(example(i).store_index);
  if (options_.normalization == Normalization::utterance) {
    FeatureStatistics own;
    own.add(features);
    normalize_features(features, own, options_.normalize_variance);
  } else if (options_.normalization != Normalization::none) {
    normalize_features(features, statistics_[static_cast<size_t>(example(i).statistics_index)],
                       options_.normalize_variance);
  }
  return options_.delta_order > 0 ? add_deltas(features, options_.delta_order) : features;
}

Batch SpeechDataset::batch(std::span<const int64_t> indices, const SpecAugmentOptions* augment,
                           const RandomStream& stream, int64_t epoch) const {
  const auto count = static_cast<int64_t>(indices.size());
  int64_t frames = 0, longest = 1;
  for (const int64_t i : indices) {
    check(i >= 0 && i < size(), "speech", "utterance ", i, " of ", size());
    frames = std::max(frames, frame_count(i));
    longest = std::max(longest, static_cast<int64_t>(labels(i).size()));
  }
  Batch batch;
  batch.elements = Tensor::zeros({count, frames, dims()});
  batch.lengths = Tensor::empty({count}, DType::int64);
  batch.labels = Tensor::full({count, longest}, PhoneTable::kBlank, DType::int64);
  batch.label_lengths = Tensor::empty({count}, DType::int64);
  for (int64_t b = 0; b < count; ++b) {
    const int64_t i = indices[static_cast<size_t>(b)];
    const std::vector<int64_t>& own = labels(i);
    batch.lengths.data<int64_t>()[b] = frame_count(i);
    std::copy(own.begin(), own.end(), batch.labels.data<int64_t>() + b * longest);
    batch.label_lengths.data<int64_t>()[b] = static_cast<int64_t>(own.size());
    const Tensor utterance_features = features(i, epoch);
    // Each utterance has a separate random stream, so the masks of the utterances are independent.
    if (augment)
      apply_spec_augment(utterance_features, *augment,
                         RandomStream(stream.key(), "utterance " + std::to_string(i), stream.step()),
                         store_->dims());
    std::memcpy(batch.elements.data<float>() + b * frames * dims(), utterance_features.raw_data(),
                static_cast<size_t>(utterance_features.bytes()));
  }
  return batch;
}

}  // namespace tapeformer
