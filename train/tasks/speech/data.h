// From a Config to speech: the corpus and its parts, features, and the model with the labels that it was
// trained on.
//
// Errors: ConfigError, DataError with the file and what to do.
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

namespace tapeformer {

// What a trained model must know of its data: it is kept in the checkpoint.
struct SpeechDescription {
  int64_t dims = 0;  // of a frame as the model takes it, with deltas
  PhoneTable phones;
  std::optional<FeatureStatistics> global;  // with data.cmvn = "global"
  int64_t longest_frames = 0;               // of the training utterances; 0: unknown
};

// Convert a description to and from the JSON object TrainingState::task. `place` is the path of state.json.
// Throw CheckpointError, naming path and entry.
std::string to_json(const SpeechDescription& description);
SpeechDescription speech_description(const std::string& task_json, const std::string& place);

// Reads the part "train", "valid" or "test" of the corpus with its labels. If the corpus has no part "valid",
// data.validation utterances of the training part are held out: whole speakers if there are many, else
// utterances spread evenly.
Corpus read_speech_part(const Config& config, const std::string& split, const DataAccess& data);

// Returns the lexicon for the words of the corpus: data.lexicon, or CMUdict in the data directories. Returns
// nothing if the corpus has phones. Throws DataError if CMUdict is needed and missing.
std::optional<std::filesystem::path> lexicon_path(const Config& config, const DataAccess& data);

// Return the folder of the corpus, and the folders of its parts below it. The list is empty for corpora
// without such folders, and contains "valid" only if the corpus has this part.
std::filesystem::path speech_corpus_folder(const Config& config, const DataAccess& data);
std::vector<std::string> speech_part_folders(const Config& config, const DataAccess& data);

// Returns the part that training evaluates on: "valid" if there is one, else "test".
std::string speech_evaluation_split(const Config& config, const DataAccess& data);

// Part of a corpus as features and labels.
struct SpeechPart {
  std::string split;
  std::shared_ptr<const SpeechDataset> set;
  std::vector<int64_t> usable;     // indices into `set`: the model can process them
  std::vector<int64_t> too_long;   // more frames than model.max_frames, which a Transformer has
  std::vector<int64_t> too_short;  // fewer frames than one step of the model
  // Number of utterances without usable sound or reference. It is the same for every model.
  int64_t left_out = 0;

  std::vector<int64_t> frames() const;  // of the usable utterances
};

// Reads a part. data.limit and data.eval_limit select utterances that are spread evenly over it. Without
// `trained`, labels and statistics are those of the part itself. With `trained`, the part is for scoring
// (SpeechUse::scoring): it keeps utterances that the model cannot process, and their phones count as deleted.
SpeechPart make_speech_part(const Config& config, const std::string& split, const DataAccess& data,
                            const SpeechDescription* trained);
SpeechDescription describe(const SpeechPart& part);

SpeechModelOptions speech_model_options(const Config& config, const SpeechDescription& description);
// With its weights set from run.seed.
std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechDescription& description,
                                               Device device = kCpu);

}  // namespace tapeformer
