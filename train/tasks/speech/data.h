// Construction of speech data and models from a Config: the features and labels of a part of a corpus, and
// the model. See train/tasks/speech/corpus.h for the errors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/speech/model.h"
#include "train/tasks/speech/corpus.h"
#include "train/tasks/speech/description.h"

namespace tapeformer {

// A part of a corpus. As a data set, it contains the utterances that the model can process. A training batch
// has SpecAugment and, in each epoch, new dither, if the config has them. A batch is padded to its longest
// utterance.
class SpeechPart final : public Dataset {
 public:
  SpeechPart(std::shared_ptr<const SpeechDataset> utterances, const std::string& split,
             const SpeechModelOptions& model, const SpeechCorpus& corpus);

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(usable_indices.size()); }
  std::vector<int64_t> lengths() const override;  // numbers of frames
  Batch batch(std::span<const int64_t> indices) const override { return utterances->batch(find(indices)); }
  Batch training_batch(std::span<const int64_t> indices, const BatchPlace& place) const override;
  std::string describe_example(int64_t index) const override;
  // Returns a text with the number of utterances, and a checksum of their lengths and labels.
  std::string compute_digest() const override;

  // Returns the indices in `utterances` of examples of the data set.
  std::vector<int64_t> find(std::span<const int64_t> indices) const;

  std::shared_ptr<const SpeechDataset> utterances;  // all utterances of the part
  // Indices into `utterances`. The model can process the utterances in `usable_indices`. Utterances in
  // `too_long_indices` have more than model.max_frames frames (Transformers only). Utterances in
  // `too_short_indices` have fewer frames than one step of the model.
  std::vector<int64_t> usable_indices, too_long_indices, too_short_indices;
  // The number of utterances without usable sound or labels. The number does not depend on the model.
  int64_t unusable_count = 0;

 private:
  DatasetInfo info_;
  std::optional<SpecAugmentOptions> augment_;
  uint64_t seed_;
};

// Reads the part "train", "valid" or "test" of the corpus in the config. data.limit is the maximum number of
// utterances of "train", and data.eval_limit is the maximum for the other parts. If a part has more
// utterances than the maximum, the selected utterances are spread evenly over the part.
//
// If `trained_metadata` is null, reads the part for training. The feature statistics are computed from the
// part. If `phone_table` is null, the phone table contains the phones of the part or, for TIMIT, the phones
// of data.phone_set. Otherwise, throws DataError if an utterance has other phones than `phone_table`, and
// ConfigError if data.phone_set has.
//
// If `trained_metadata` is not null, reads the part for scoring. The phone table and the feature statistics
// come from `trained_metadata`. Utterances that CTC cannot align with their labels are kept.
std::shared_ptr<const SpeechPart> read_speech_part(const Config& config, const std::string& split,
                                                   const DataAccessOptions& access,
                                                   const SpeechMetadata* trained_metadata,
                                                   const PhoneTable* phone_table = nullptr);
SpeechMetadata make_speech_metadata(const SpeechPart& part);

SpeechModelOptions make_speech_model_options(const Config& config, const SpeechMetadata& metadata);
// Returns a model with weights initialized from run.seed.
std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechMetadata& metadata,
                                               Device device = kCpu);

}  // namespace tapeformer
