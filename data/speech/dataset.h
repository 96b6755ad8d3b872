// Speech as batches for CTC: features of utterances and the numbers of their phones. A batch is a pure
// function of (corpus, options, indices, step), whatever the number of threads.
//
// Utterances without usable audio or labels are left out; the report contains their ids and faults. Throws
// DataError if no utterance is left, or at the first fault if options.refuse_bad is true. Throws ConfigError
// for invalid options.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/feature_store.h"
#include "data/speech/features.h"
#include "data/speech/phones.h"

namespace tapeformer {

// The use of a data set. In training, utterances whose labels CTC cannot align with the frames are left out.
// In scoring, all utterances with labels are kept, even if they are too short or have phones that the table
// lacks.
enum class SpeechUse { training, scoring };

enum class Normalization { none, utterance, speaker, global };

struct SpeechOptions {
  FeatureOptions features;
  Normalization normalization = Normalization::utterance;
  bool normalize_variance = true;
  std::optional<FeatureStatistics> global = {};  // of the training set, for the others; else the set's own
  int64_t delta_order = 0;                       // 2 triples the dimensions
  int64_t subsampling = 1;                       // frames in a step of the model
  bool refuse_bad = false;                       // the first unusable utterance ends the run
  SpeechUse use = SpeechUse::training;
  int64_t limit = 0;  // utterances, spread evenly over the corpus; 0: all. Statistics of speakers are of all
};

struct SpeechBatch {
  Tensor features;       // (batch, frames, dims) float32, 0 beyond the length
  Tensor lengths;        // (batch,) int64 frames
  Tensor labels;         // (batch, longest) int64, PhoneTable::kBlank beyond the length
  Tensor label_lengths;  // (batch,) int64
  std::vector<int64_t> indices;

  double padding() const;  // the share of frames that are padding
};

struct SpeechReport {
  int64_t utterances = 0, frames = 0, labels = 0;  // usable
  std::vector<std::string> bad;                    // "id: fault"
  // Ids with fewer steps than labels and blanks between equal labels: left out of training, kept in scoring.
  std::vector<std::string> too_short;
  std::set<std::string> unseen_phones;  // phones of references in scoring that the table lacks
};

class SpeechDataset {
 public:
  SpeechDataset(const Corpus& corpus, PhoneTable phones, SpeechOptions options);

  const SpeechReport& report() const { return report_; }
  const PhoneTable& phones() const { return phones_; }
  const SpeechOptions& options() const { return options_; }
  const FeatureStatistics& global_statistics() const {
    return global_;
  }  // for Normalization::global, else empty
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  int64_t dims() const { return store_->dims() * (options_.delta_order + 1); }
  int64_t frames(int64_t i) const { return store_->frames(item(i).stored); }
  std::vector<int64_t> all_frames() const;
  const Utterance& utterance(int64_t i) const { return item(i).utterance; }
  // Returns the numbers of the utterance's phones. Empty if the table lacks a phone.
  const std::vector<int64_t>& labels(int64_t i) const { return item(i).labels; }
  // Returns the phones of the utterance, including phones that the table lacks.
  const Words& reference(int64_t i) const { return item(i).utterance.phones; }
  // Returns whether CTC can align the labels with the frames. Always true in training.
  bool has_loss(int64_t i) const { return item(i).has_loss; }
  // Normalised, with deltas: (frames, dims). Dither is other noise in every epoch, so that with it recordings
  // are read again in all epochs but the first; statistics are those of the first.
  Tensor features(int64_t i, int64_t epoch = 0) const;

  // Without an augmentation the features are as they are; `stream` is that of the training step, of which
  // every utterance takes a part of its own.
  SpeechBatch batch(std::span<const int64_t> indices, const SpecAugmentOptions* augment = nullptr,
                    const RandomStream& stream = {}, int64_t epoch = 0) const;

 private:
  struct Item {
    Utterance utterance;
    std::vector<int64_t> labels;
    int64_t stored, statistics;  // places in the store and in statistics_
    bool chosen;                 // else it is there for the statistics of its speaker
    bool has_loss;
  };
  const Item& item(int64_t i) const { return items_[static_cast<size_t>(i)]; }
  void choose_items(const Corpus& corpus, const std::vector<bool>& chosen);
  Item make_item(const Utterance& utterance, int64_t stored, bool chosen);
  void gather_statistics(const std::string& corpus_name);

  PhoneTable phones_;
  SpeechOptions options_;
  std::shared_ptr<const FeatureStore> store_;
  std::optional<Filterbank> filterbank_;  // where there is dither
  std::vector<Item> items_;
  std::vector<FeatureStatistics> statistics_;  // per speaker, or one
  FeatureStatistics global_;
  SpeechReport report_;
};

struct BatchPlanOptions {
  int64_t max_frames = 20000;  // of a batch, padding counted; a longer utterance is a batch of its own
  int64_t max_batch = 0;       // utterances; 0: any number
  bool shuffle = true;         // by seed and epoch; else from short to long
  uint64_t seed = 0;
};

// The batches of an epoch, every utterance in one. Utterances of about the same length come together; which
// of them, and the order of batches, is random.
std::vector<std::vector<int64_t>> plan_batches(std::span<const int64_t> frames,
                                               const BatchPlanOptions& options, int64_t epoch);

// The share of padding among the frames of all batches.
double padding_share(std::span<const int64_t> frames, const std::vector<std::vector<int64_t>>& batches);

}  // namespace tapeformer
