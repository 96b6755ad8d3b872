// The corpus of a config of speech: its options, its folders and the utterances of its parts.
//
// Functions throw ConfigError if the config does not match the data, and DataError with the name of a missing
// or invalid file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/speech/speech_options.h"
#include "train/config/config.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

class SpeechCorpus {
 public:
  // Reads the options of the config. Throws ConfigError if its data set is not of speech.
  explicit SpeechCorpus(const Config& config, DataAccessOptions access = {});

  const CatalogueEntry& set() const { return set_; }
  const SpeechDataOptions& options() const { return options_; }
  const DataAccessOptions& access() const { return access_; }
  uint64_t seed() const { return seed_; }  // run.seed
  // Returns data.limit for "train", and data.eval_limit for other parts.
  int64_t limit_of(const std::string& split) const { return split == "train" ? limit_ : eval_limit_; }

  FeatureOptions make_feature_options(bool training) const;
  // Returns whether data.cmvn is "utterance" or "speaker", so that the features of a frame depend on the
  // whole utterance.
  bool needs_whole_utterances() const;
  // Returns whether the features are those of .mfc files.
  bool has_mfc_files() const { return set_.sample_rate == 0; }
  // Returns whether the phones are those of data.phone_set instead of those of the training part.
  bool has_phone_set() const { return set_.format == CorpusFormat::timit; }

  // Returns data.path. If data.path is empty, returns the folder of data.dataset in the data directories.
  std::filesystem::path find_folder() const;
  // Throws DataError if data.valid_part or data.test_part names a folder that does not exist.
  void check_part_folders() const;
  // Returns the folders of the training part, the validation part if there is one, and the test part. If the
  // folder of the test part does not exist, the list contains this folder only if data.test_part is set or
  // training evaluates on the test part. Each returned path is absolute, or relative to the folder of the
  // corpus. If the corpus does not have one folder per part, returns an empty list.
  std::vector<std::string> list_part_folders() const;
  // Returns the path of the lexicon for the words of the corpus: data.lexicon or, if data.lexicon is empty,
  // CMUdict in the data directories. If the transcripts of the corpus are phones, returns std::nullopt.
  // Throws DataError if CMUdict is needed but missing.
  std::optional<std::filesystem::path> find_lexicon() const;
  // Returns the part that training evaluates on: "valid" if the corpus has this part or data.validation is
  // positive, else "test".
  std::string choose_evaluation_split() const;

  // Reads the part "train", "valid" or "test" with its labels.
  //
  // If the corpus has no part "valid" and data.validation is positive, at least data.validation utterances of
  // the training part are held out for validation. If the training part has at least 10 speakers, all
  // utterances of some speakers are held out. Otherwise, the held-out utterances are evenly spaced in the
  // training part. Throws ConfigError if `split` is "valid", the corpus has no part "valid", and
  // data.validation is 0.
  Corpus read_part(const std::string& split) const;

 private:
  const std::string& get_part_option(const std::string& split) const;
  std::filesystem::path find_part_name(const std::string& split) const;
  // Returns whether the folder of the part `split`, which is "valid" or "test", exists. Throws DataError if
  // the config names a folder that does not exist.
  bool has_part_folder(const std::string& split) const;
  bool has_phones_as_text() const;
  Corpus read_files(const std::string& split) const;
  void find_phones(Corpus& corpus) const;

  const CatalogueEntry& set_;
  SpeechDataOptions options_;
  DataAccessOptions access_;
  uint64_t seed_;
  int64_t limit_, eval_limit_;
};

}  // namespace tapeformer
