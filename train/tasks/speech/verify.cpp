#include "train/tasks/speech/verify.h"

#include "core/base/errors.h"
#include "data/sets/catalogue.h"
#include "data/speech/kaldi_directory.h"
#include "train/build.h"
#include "train/tasks/speech/data.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

bool has_part_names(const SpeechDataOptions& data) {
  return !data.train_part.empty() || !data.valid_part.empty() || !data.test_part.empty();
}

}  // namespace

SpeechCheckOptions make_speech_check_options(const Config& config, const DataAccessOptions& data,
                                             Faults& faults) {
  SpeechCheckOptions checks;
  checks.feature_options = make_feature_options(config, true);
  checks.feature_options.cache_folder.clear();
  checks.infer_sample_rate = false;
  checks.subsampling = read_options<SpeechModelOptions>(config).subsampling;
  checks.allow_commands = data.allow_commands;
  try {
    const auto path = find_lexicon(config, data);
    checks.words_are_phones = !path;
    if (path && get_speech_options(config).unknown_words == "refuse")
      checks.lexicon = std::make_shared<const Lexicon>(Lexicon::read(*path, &faults));
  } catch (const DataError& error) {
    faults.push_back(error.what());
  }
  return checks;
}

Faults find_speech_data_faults(const Config& config, const DataAccessOptions& data,
                               SpeechCheckSummary* summary) {
  Faults faults;
  try {
    SpeechCheckOptions checks = make_speech_check_options(config, data, faults);
    const auto model = read_options<SpeechModelOptions>(config);
    if (model.encoder_kind == SpeechEncoderKind::transformer) checks.max_frames = model.max_frames;
    checks.parts = list_corpus_part_folders(config, data);
    const Faults found =
        find_speech_faults(config.data.dataset, find_speech_corpus_folder(config, data), checks, summary);
    faults.insert(faults.end(), found.begin(), found.end());
    if (!faults.empty()) return faults;
    // Reads the parts as training does. This detects further errors. For example, read_corpus_part() throws
    // ConfigError if data.validation holds out all utterances.
    read_corpus_part(config, "train", data);
    read_corpus_part(config, choose_speech_evaluation_split(config, data), data);
  } catch (const DataError& error) {
    faults.push_back(error.what());
  }
  return faults;
}

Faults find_speech_folder_faults(Config config, const fs::path& folder, const DataAccessOptions& data,
                                 SpeechCheckSummary* summary) {
  config.data.options.set("path", folder.string());
  const SpeechDataOptions options = get_speech_options(config);
  Faults faults;
  SpeechCheckOptions checks = make_speech_check_options(config, data, faults);
  checks.infer_sample_rate = options.sample_rate == 0 && !options.resample &&
                             require_catalogue_entry(config.data.dataset).format == DatasetFormat::kaldi;
  if (has_part_names(options) && !is_kaldi_directory(folder))
    checks.parts = list_corpus_part_folders(config, data);
  const Faults found = find_speech_faults(config.data.dataset, folder, checks, summary);
  faults.insert(faults.end(), found.begin(), found.end());
  return faults;
}

}  // namespace tapeformer
