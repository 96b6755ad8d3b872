#include "train/tasks/speech/corpus.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/sets/directory.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/read_corpus.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// If a training part has at least this number of speakers, hold_out() removes all utterances of some
// speakers.
constexpr size_t kManySpeakers = 10;

// Removes at least `count` utterances from `all` and returns them. If there are at least kManySpeakers
// speakers, removes all utterances of the last speakers in alphabetical order. Otherwise, removes `count`
// utterances that are evenly spaced in `all`.
std::vector<Utterance> hold_out(std::vector<Utterance>& all, int64_t count) {
  std::set<std::string> speakers;
  for (const Utterance& u : all) speakers.insert(u.speaker);
  if (count >= static_cast<int64_t>(all.size()))
    throw ConfigError(concat_text("data.validation = ", count, " holds out all of the ", all.size(),
                                  " utterances; expected less"));
  std::vector<bool> held(all.size());
  if (speakers.size() >= kManySpeakers) {
    int64_t found = 0;
    for (auto speaker = speakers.rbegin(); found < count; ++speaker)
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i].speaker == *speaker) {
          held[i] = true;
          ++found;
        }
  } else {
    for (int64_t i = 0; i < count; ++i)
      held[static_cast<size_t>(i) * all.size() / static_cast<size_t>(count)] = true;
  }
  std::vector<Utterance> kept, result;
  for (size_t i = 0; i < all.size(); ++i) (held[i] ? result : kept).push_back(std::move(all[i]));
  if (kept.empty()) throw ConfigError("data.validation holds out all speakers; expected less");
  all = std::move(kept);
  return result;
}

}  // namespace

SpeechCorpus::SpeechCorpus(const Config& config, DataAccessOptions access)
    : set_(require_catalogue_entry(config.data.dataset)),
      options_(read_speech_options(set_, config.data.all_options())),
      access_(std::move(access)),
      seed_(static_cast<uint64_t>(config.run.seed)),
      limit_(config.data.limit),
      eval_limit_(config.data.eval_limit) {}

FeatureOptions SpeechCorpus::make_feature_options(bool training) const {
  FeatureOptions options;
  const int64_t rate = options_.sample_rate > 0 ? options_.sample_rate : set_.sample_rate;
  if (rate > 0) options.filterbank.rate = rate;
  options.filterbank.bins = options_.num_mel_bins;
  options.filterbank.dither = training ? options_.dither : 0;
  options.resample = options_.resample;
  if (options_.channel >= 0) options.channel = options_.channel;
  options.max_seconds = options_.max_seconds;
  options.seed = seed_;
  options.cache_folder = options_.feature_cache;
  return options;
}

bool SpeechCorpus::needs_whole_utterances() const {
  return options_.normalization == Normalization::utterance ||
         options_.normalization == Normalization::speaker;
}

const std::string& SpeechCorpus::get_part_option(const std::string& split) const {
  return split == "train" ? options_.train_part : split == "valid" ? options_.valid_part : options_.test_part;
}

// Returns the folder of the part "train", "valid" or "test". The returned path is absolute, or relative to
// the folder of the corpus.
fs::path SpeechCorpus::find_part_name(const std::string& split) const {
  const std::string& named = get_part_option(split);
  if (named.empty())
    return split == "train" ? set_.train_part : split == "valid" ? set_.valid_part : set_.test_part;
  fs::path part = fs::path(named).lexically_normal();
  if (!part.has_filename()) part = part.parent_path();
  if (part.filename().empty() || part.filename() == "." || part.filename() == "..")
    throw ConfigError("data." + split + "_part = \"" + named + "\": expected the folder of a part");
  return part;
}

bool SpeechCorpus::has_part_folder(const std::string& split) const {
  if (!set_.has_part_folders()) return false;
  const fs::path part = find_folder() / find_part_name(split);
  if (is_folder(part)) return true;
  if (!get_part_option(split).empty())
    throw DataError(concat_text(part.string(), ": no such folder; data.", split, "_part names it"));
  return false;
}

bool SpeechCorpus::has_phones_as_text() const {
  return options_.lexicon.empty() && set_.format == CorpusFormat::kaldi;
}

std::optional<fs::path> SpeechCorpus::find_lexicon() const {
  if (has_phones_as_text() || set_.label_kind == SpeechLabelKind::phones) return std::nullopt;
  return options_.lexicon.empty() ? find_cmudict(access_.data_dir) : fs::path(options_.lexicon);
}

fs::path SpeechCorpus::find_folder() const {
  const fs::path folder = options_.path;
  if (folder.empty()) return require_dataset_folder(set_, access_.data_dir);
  if (!is_folder(folder))
    throw DataError(folder.string() + ": no such folder; data.path names the folder of the corpus");
  return folder;
}

void SpeechCorpus::check_part_folders() const {
  for (const char* split : {"valid", "test"}) has_part_folder(split);
}

std::vector<std::string> SpeechCorpus::list_part_folders() const {
  if (!set_.has_part_folders()) return {};
  std::vector<std::string> parts = {find_part_name("train").string()};
  if (has_part_folder("valid")) parts.push_back(find_part_name("valid").string());
  const fs::path test = find_part_name("test");
  const bool needed = parts.size() == 1 && options_.validation == 0;
  if (needed || !options_.test_part.empty() || is_folder(find_folder() / test))
    parts.push_back(test.string());
  return parts;
}

std::string SpeechCorpus::choose_evaluation_split() const {
  return options_.validation > 0 || has_part_folder("valid") ? "valid" : "test";
}

Corpus SpeechCorpus::read_files(const std::string& split) const {
  const fs::path folder = find_folder();
  const CorpusOptions options{options_.phone_set, access_.allow_commands};
  if (!set_.has_part_folders()) return read_corpus(set_, folder, split, options);
  const fs::path name = find_part_name(split), part = folder / name;
  if (!is_folder(part))
    throw DataError(part.string() + ": no such folder; data." + split +
                    "_part names the part of the corpus for \"" + split + "\"");
  return read_corpus(set_, folder, name.string(), options);
}

void SpeechCorpus::find_phones(Corpus& corpus) const {
  if (has_phones_as_text()) return copy_words_to_phones(corpus);
  if (std::all_of(corpus.utterances.begin(), corpus.utterances.end(),
                  [](const Utterance& u) { return !u.phones.empty() || !u.fault.empty(); }))
    return;
  const fs::path path = find_lexicon().value();
  const PhoneAssignmentReport report = assign_phones(corpus, Lexicon::read(path), options_.unknown_words);
  if (report.dropped_count == 0) return;
  log_warning(corpus.name, ": left out ", report.dropped_count, " utterances with words that ", path.string(),
              " lacks: ", abbreviate_list(report.unknown_words));
}

Corpus SpeechCorpus::read_part(const std::string& split) const {
  const bool own_valid = has_part_folder("valid");
  const bool holds_out = options_.validation > 0 && !own_valid;
  const std::string name(set_.name);
  if (split == "valid" && !own_valid && !holds_out)
    throw ConfigError(name + " has no part \"valid\" of its own; data.validation holds utterances out");
  const bool from_train = split == "train" || (split == "valid" && !own_valid);
  Corpus corpus = read_files(from_train ? "train" : split);
  find_phones(corpus);
  if (from_train && holds_out) {
    auto held = hold_out(corpus.utterances, options_.validation);
    if (split == "valid") corpus.utterances = std::move(held);
  }
  corpus.name = name + " " + split;
  return corpus;
}

}  // namespace tapeformer
