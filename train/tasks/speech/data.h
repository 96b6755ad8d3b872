// Construction of speech data and models from a Config: the parts of a corpus, their features and labels, and
// the model.
//
// Functions throw ConfigError if the config does not match the data, and DataError with the name of a missing
// or invalid file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/speech/dataset.h"
#include "models/speech/model.h"
#include "train/config/config.h"
#include "train/tasks/data_access.h"
#include "train/tasks/speech/description.h"

namespace tapeformer {

// Reads the part "train", "valid" or "test" of the corpus with its labels.
//
// If the corpus has no part "valid" and data.validation is positive, at least data.validation utterances of
// the training part are held out for validation. If the training part has at least 10 speakers, all
// utterances of some speakers are held out. Otherwise, the held-out utterances are evenly spaced in the
// training part. Throws ConfigError if `split` is "valid", the corpus has no part "valid", and
// data.validation is 0.
Corpus read_corpus_part(const Config& config, const std::string& split, const DataAccessOptions& data);

// Returns the path of the lexicon for the words of the corpus: data.lexicon or, if data.lexicon is empty,
// CMUdict in the data directories. If the transcripts of the corpus are phones, returns std::nullopt. Throws
// DataError if CMUdict is needed but missing.
std::optional<std::filesystem::path> find_lexicon(const Config& config, const DataAccessOptions& data);

// Returns data.path. If data.path is empty, returns the folder of data.dataset in the data directories.
std::filesystem::path find_speech_corpus_folder(const Config& config, const DataAccessOptions& data);
// Throws DataError if data.valid_part or data.test_part names a folder that does not exist.
void check_part_folders(const Config& config, const DataAccessOptions& data);
// Returns the folders of the training part, the validation part if there is one, and the test part. If the
// folder of the test part does not exist, the list contains this folder only if data.test_part is set or
// training evaluates on the test part. Each returned path is absolute, or relative to the folder of the
// corpus. If the corpus does not have one folder per part, returns an empty list.
std::vector<std::string> list_corpus_part_folders(const Config& config, const DataAccessOptions& data);

// Returns the part that training evaluates on: "valid" if the corpus has this part or data.validation is
// positive, else "test".
std::string choose_speech_evaluation_split(const Config& config, const DataAccessOptions& data);

// Features and labels of a part of a corpus.
struct SpeechPart {
  std::string split;
  std::shared_ptr<const SpeechDataset> dataset;
  // Indices into `dataset`. The model can process the utterances in `usable_indices`. Utterances in
  // `too_long_indices` have more than model.max_frames frames (Transformers only). Utterances in
  // `too_short_indices` have fewer frames than one step of the model.
  std::vector<int64_t> usable_indices, too_long_indices, too_short_indices;
  // The number of utterances without usable sound or labels. The number does not depend on the model.
  int64_t unusable_count = 0;

  std::vector<int64_t> frame_counts() const;  // numbers of frames of the usable utterances
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
SpeechPart read_speech_part(const Config& config, const std::string& split, const DataAccessOptions& data,
                            const SpeechMetadata* trained_metadata, const PhoneTable* phone_table = nullptr);
SpeechMetadata make_speech_metadata(const SpeechPart& part);

SpeechModelOptions make_speech_model_options(const Config& config, const SpeechMetadata& metadata);
// Returns a model with weights initialized from run.seed.
std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechMetadata& metadata,
                                               Device device = kCpu);

}  // namespace tapeformer
