#include "train/tasks/speech/verify.h"

#include "core/base/errors.h"
#include "data/speech/kaldi_directory.h"
#include "train/build.h"
#include "train/tasks/speech/data.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

bool has_part_names(const SpeechDataOptions& data) {
  return !data.train_part.empty() || !data.valid_part.empty() || !data.test_part.empty();
}

// Returns the checks of sample rate, channel, length, lexicon and subsampling that a config requires. Reads
// the lexicon and appends its faults to `faults`.
SpeechCheckOptions make_check_options(const Config& config, const SpeechCorpus& corpus, Faults& faults) {
  SpeechCheckOptions checks;
  checks.feature_options = corpus.make_feature_options(true);
  checks.feature_options.cache_folder.clear();
  checks.infer_sample_rate = false;
  checks.subsampling = read_options<SpeechModelOptions>(config).subsampling;
  checks.allow_commands = corpus.access().allow_commands;
  try {
    const auto path = corpus.find_lexicon();
    checks.words_are_phones = !path;
    if (path && corpus.options().unknown_words == UnknownWordPolicy::refuse)
      checks.lexicon = std::make_shared<const Lexicon>(Lexicon::read(*path, &faults));
  } catch (const DataError& error) {
    faults.push_back(error.what());
  }
  return checks;
}

}  // namespace

Faults find_speech_data_faults(const Config& config, const DataAccessOptions& data,
                               SpeechCheckSummary* summary) {
  Faults faults;
  try {
    const SpeechCorpus corpus(config, data);
    SpeechCheckOptions checks = make_check_options(config, corpus, faults);
    const auto model = read_options<SpeechModelOptions>(config);
    if (model.encoder_kind == SpeechEncoderKind::transformer) checks.max_frames = model.max_frames;
    checks.parts = corpus.list_part_folders();
    const Faults found = find_speech_faults(config.data.dataset, corpus.find_folder(), checks, summary);
    faults.insert(faults.end(), found.begin(), found.end());
    if (!faults.empty()) return faults;
    // Reads the parts as training does. This detects further errors. For example, read_part() throws
    // ConfigError if data.validation holds out all utterances.
    corpus.read_part("train");
    corpus.read_part(corpus.choose_evaluation_split());
  } catch (const DataError& error) {
    faults.push_back(error.what());
  }
  return faults;
}

Faults find_speech_folder_faults(Config config, const fs::path& folder, const DataAccessOptions& data,
                                 SpeechCheckSummary* summary) {
  config.data.options.set("path", folder.string());
  const SpeechCorpus corpus(config, data);
  const SpeechDataOptions& options = corpus.options();
  Faults faults;
  SpeechCheckOptions checks = make_check_options(config, corpus, faults);
  checks.infer_sample_rate =
      options.sample_rate == 0 && !options.resample && corpus.set().format == CorpusFormat::kaldi;
  if (has_part_names(options) && !is_kaldi_directory(folder)) checks.parts = corpus.list_part_folders();
  const Faults found = find_speech_faults(config.data.dataset, folder, checks, summary);
  faults.insert(faults.end(), found.begin(), found.end());
  return faults;
}

}  // namespace tapeformer
