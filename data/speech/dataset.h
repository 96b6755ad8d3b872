// Data sets of speech for CTC. An example consists of the features and the labels of an utterance. The labels
// are the indices of the phones of the utterance in a phone table. A batch depends only on the corpus, the
// phone table, the options and the arguments of batch(). Batches do not depend on the number of threads.
//
// Utterances without usable recordings or labels are left out, and SpeechDatasetReport contains their ids and
// faults. If no utterance is left, the constructor of SpeechDataset throws DataError. If
// options.reject_faulty_utterances is true, the constructor throws DataError at the first fault. The
// constructor throws ConfigError for invalid options.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"
#include "data/speech/corpus.h"
#include "data/speech/feature_store.h"
#include "data/speech/features.h"
#include "data/speech/phones/phones.h"

namespace tapeformer {

// Purpose of a data set. For training, utterances whose labels CTC cannot align with the frames are left out.
// For scoring, all utterances with labels are kept.
enum class SpeechPurpose { training, scoring };

// Frames from which the mean and the variance for normalisation are computed: the frames of the utterance,
// the frames of its speaker, or all frames of the training set (`global`). `none`: no normalisation.
enum class Normalization { none, utterance, speaker, global };

struct SpeechDatasetOptions {
  FeatureOptions feature_options;
  Normalization normalization = Normalization::utterance;
  bool normalize_variance = true;
  // Statistics of the training set for Normalization::global; std::nullopt: computed from this data set.
  std::optional<FeatureStatistics> global_statistics = {};
  int64_t delta_order = 0;                // highest order of the derivatives in the features
  int64_t subsampling = 1;                // number of frames per step of the model
  bool reject_faulty_utterances = false;  // throws at the first unusable utterance
  SpeechPurpose purpose = SpeechPurpose::training;
  // Maximum number of utterances in the data set; 0: no limit. The selected utterances are spread evenly over
  // the corpus. The statistics of a speaker are computed from all usable utterances of the speaker, even from
  // utterances that are not selected.
  int64_t limit = 0;
};

struct SpeechDatasetReport {
  // Number of usable utterances, and the numbers of frames and labels of these utterances.
  int64_t utterance_count = 0, frame_count = 0, label_count = 0;
  std::vector<std::string> faults;  // utterances that cannot be used, each as "id: fault"
  // Ids of utterances with fewer steps than CTC needs for the labels. Training leaves these utterances out,
  // and scoring keeps them.
  std::vector<std::string> too_short_ids;
  // Phones that occur in the utterances but not in the phone table. Empty for SpeechPurpose::training.
  std::set<std::string> unseen_phones;
};

class SpeechDataset {
 public:
  SpeechDataset(const Corpus& corpus, PhoneTable phones, SpeechDatasetOptions options);

  const SpeechDatasetReport& report() const { return report_; }
  const PhoneTable& phone_table() const { return phone_table_; }
  const SpeechDatasetOptions& options() const { return options_; }
  // Returns the statistics that Normalization::global uses. For other normalisations, returns empty
  // statistics.
  const FeatureStatistics& global_statistics() const { return global_statistics_; }
  int64_t size() const { return static_cast<int64_t>(examples_.size()); }
  int64_t dims() const { return store_->dims() * (options_.delta_order + 1); }
  int64_t frame_count(int64_t i) const { return store_->frame_count(example(i).store_index); }
  const Utterance& utterance(int64_t i) const { return example(i).utterance; }
  // Returns the indices of the utterance's phones in the phone table, or an empty list if the table lacks a
  // phone.
  const std::vector<int64_t>& labels(int64_t i) const { return example(i).labels; }
  // Returns the phones of the utterance, including phones that the table lacks.
  const Words& reference_phones(int64_t i) const { return example(i).utterance.phones; }
  // Returns whether CTC can align the labels with the frames. Always true in training.
  bool is_alignable(int64_t i) const { return example(i).is_alignable; }
  // Returns the normalised features of an utterance with deltas, (frames, dims). If dither is on, the
  // features of recordings are computed again with new noise in each epoch after the first. The statistics of
  // speakers and of the training set always use the noise of epoch 0.
  Tensor features(int64_t i, int64_t epoch = 0) const;

  // Returns the utterances with these indices as a batch with `elements`, the features, `lengths` in frames,
  // `labels`, which are padded with PhoneTable::kBlank, and `label_lengths`. If `augment` is not null,
  // applies SpecAugment with random numbers from `stream`. `epoch` determines the dither noise.
  Batch batch(std::span<const int64_t> indices, const SpecAugmentOptions* augment = nullptr,
              const RandomStream& stream = {}, int64_t epoch = 0) const;

 private:
  struct Example {
    Utterance utterance;
    std::vector<int64_t> labels;
    int64_t store_index, statistics_index;  // indices in the store and in statistics_
    bool is_chosen;  // whether the example is in the data set or only used for the statistics of its speaker
    bool is_alignable;
  };
  const Example& example(int64_t i) const { return examples_[static_cast<size_t>(i)]; }
  void make_examples(const Corpus& corpus, const std::vector<bool>& chosen);
  Example make_example(const Utterance& utterance, int64_t store_index, bool is_chosen);
  void gather_statistics(const std::string& corpus_name);

  PhoneTable phone_table_;
  SpeechDatasetOptions options_;
  std::shared_ptr<const FeatureStore> store_;
  // Filterbank for features with new dither in each epoch after the first; std::nullopt if dither is off.
  std::optional<Filterbank> filterbank_;
  std::vector<Example> examples_;
  // Statistics for the normalisation: one element per speaker for Normalization::speaker, one element for
  // Normalization::global, and no element for other normalisations.
  std::vector<FeatureStatistics> statistics_;
  FeatureStatistics global_statistics_;
  SpeechDatasetReport report_;
};

}  // namespace tapeformer
