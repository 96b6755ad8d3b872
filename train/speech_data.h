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

#include "data/speech_dataset.h"
#include "models/speech_model.h"
#include "train/config.h"
#include "train/data_access.h"

namespace tapeformer {

// What a trained model must know of its data: it is kept in the checkpoint.
struct SpeechDescription {
  int64_t dims = 0;  // of a frame as the model takes it, with deltas
  PhoneTable phones;
  std::optional<FeatureStatistics> global;  // with data.cmvn = "global"
  int64_t longest_frames = 0;               // of a training utterance; 0: the checkpoint does not say
};

// As a JSON object, and from TrainingState::task of a checkpoint. `place` is the path of its state.json.
// Throws CheckpointError, naming path and entry.
std::string to_json(const SpeechDescription& description);
SpeechDescription speech_description(const std::string& task_json, const std::string& place);

// A part of the corpus with its labels, "train", "valid" or "test". Without a part for "valid" of its own,
// data.validation utterances of the training part are held out: whole speakers if there are many, else spread
// evenly.
Corpus read_speech_part(const Config& config, const std::string& split, const DataAccess& data);

// Where words of the corpus get their phones: data.lexicon, or CMUdict among the data. Nothing if the corpus
// has phones. Throws DataError if CMUdict is needed and not there.
std::optional<std::filesystem::path> lexicon_path(const Config& config, const DataAccess& data);

// The folder of the corpus, and the folders of its parts below it; empty for corpora without such folders.
// The part "valid" is listed if it is there.
std::filesystem::path speech_corpus_folder(const Config& config, const DataAccess& data);
std::vector<std::string> speech_part_folders(const Config& config, const DataAccess& data);

// The part that training evaluates on: "valid" where there is one, else "test".
std::string speech_evaluation_split(const Config& config, const DataAccess& data);

// A part as features and labels; data.limit and data.eval_limit take utterances spread evenly over it.
// Without `trained`, labels and statistics are those of the part itself.
// With `trained`, the part is for scoring: it keeps utterances that the model cannot process, whose phones
// count as deleted (SpeechUse::scoring).
struct SpeechPart {
  std::string split;
  std::shared_ptr<const SpeechDataset> set;
  std::vector<int64_t> usable;     // of the set: the model can process them
  std::vector<int64_t> too_long;   // more frames than model.max_frames, which a Transformer has
  std::vector<int64_t> too_short;  // fewer frames than one step of the model
  // Utterances without usable sound or reference. They are the same for every model.
  int64_t left_out = 0;

  std::vector<int64_t> frames() const;  // of the usable ones
};
SpeechPart make_speech_part(const Config& config, const std::string& split, const DataAccess& data,
                            const SpeechDescription* trained);
SpeechDescription describe(const SpeechPart& part);

SpeechModelOptions speech_model_options(const Config& config, const SpeechDescription& description);
// With its weights set from run.seed.
std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechDescription& description,
                                               Device device = kCpu);

}  // namespace tapeformer
