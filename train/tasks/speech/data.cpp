#include "train/tasks/speech/data.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "core/base/errors.h"
#include "core/base/frames.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/sets/directory.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/read_corpus.h"
#include "train/build.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// If a training part has at least this number of speakers, hold_out() removes all utterances of some
// speakers.
constexpr size_t kManySpeakers = 10;

// Returns the folder of the part "train", "valid" or "test". The returned path is absolute, or relative to
// the folder of the corpus.
fs::path part_name(const Config& config, const std::string& split) {
  const SpeechDataOptions d = get_speech_options(config);
  const CatalogueEntry& set = require_catalogue_entry(config.data.dataset);
  const bool train = split == "train", valid = split == "valid";
  const std::string& named = train ? d.train_part : valid ? d.valid_part : d.test_part;
  if (named.empty()) return train ? set.train_part : valid ? set.valid_part : set.test_part;
  fs::path part = fs::path(named).lexically_normal();
  if (!part.has_filename()) part = part.parent_path();
  if (part.filename().empty() || part.filename() == "." || part.filename() == "..")
    throw ConfigError("data." + split + "_part = \"" + named + "\": expected the folder of a part");
  return part;
}

PhoneSet parse_timit_set(const std::string& name) {
  if (name == "timit61") return PhoneSet::timit61;
  return name == "timit48" ? PhoneSet::timit48 : PhoneSet::timit39;
}

Corpus read_part(const Config& config, const fs::path& folder, const std::string& split,
                 bool allow_commands) {
  const CatalogueEntry& set = require_catalogue_entry(config.data.dataset);
  const CorpusOptions options{parse_timit_set(get_speech_options(config).phone_set), allow_commands};
  if (!set.has_part_folders()) return read_corpus(set, folder, split, options);
  const fs::path name = part_name(config, split), part = folder / name;
  if (!is_folder(part))
    throw DataError(part.string() + ": no such folder; data." + split +
                    "_part names the part of the corpus for \"" + split + "\"");
  return read_corpus(set, folder, name.string(), options);
}

bool is_text_phones(const Config& config) {
  return get_speech_options(config).lexicon.empty() &&
         require_catalogue_entry(config.data.dataset).format == DatasetFormat::kaldi;
}

void find_phones(const Config& config, const DataAccessOptions& data, Corpus& corpus) {
  if (is_text_phones(config)) return copy_words_to_phones(corpus);
  if (std::all_of(corpus.utterances.begin(), corpus.utterances.end(),
                  [](const Utterance& u) { return !u.phones.empty() || !u.fault.empty(); }))
    return;
  const fs::path path = find_lexicon(config, data).value();
  const PhoneAssignmentReport report =
      assign_phones(corpus, Lexicon::read(path),
                    get_speech_options(config).unknown_words == "drop" ? UnknownWordPolicy::drop
                                                                       : UnknownWordPolicy::refuse);
  if (report.dropped_count == 0) return;
  log_warning(corpus.name, ": left out ", report.dropped_count, " utterances with words that ", path.string(),
              " lacks: ", abbreviate_list(report.unknown_words));
}

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

bool has_phone_set(const Config& config) {
  return require_catalogue_entry(config.data.dataset).format == DatasetFormat::timit;
}

// Returns the phones of data.phone_set for TIMIT, and those of the training part for other corpora.
PhoneTable make_training_phones(const Config& config, const Corpus& corpus) {
  if (has_phone_set(config))
    return PhoneTable(list_timit_phones(parse_timit_set(get_speech_options(config).phone_set)));
  std::vector<Words> sequences;
  for (const Utterance& u : corpus.utterances) sequences.push_back(u.phones);
  return make_phone_table(sequences);
}

// Throws an error if a model with the phones `trained` cannot learn the phones `own` of the training part.
void check_phones(const Config& config, const Corpus& corpus, const PhoneTable& own,
                  const PhoneTable& trained) {
  constexpr const char* kNewPhones =
      "model.init_tokens = \"new\" makes new phones from the data, whose outputs start anew";
  if (has_phone_set(config) && own.names() != trained.names())
    throw ConfigError(concat_text("data.phone_set = \"", get_speech_options(config).phone_set,
                                  "\": the phones of model.init are others; ", kNewPhones));
  Words unknown;
  for (const std::string& phone : own.names())
    if (phone != PhoneTable::kBlankName && !trained.contains(phone)) unknown.push_back(phone);
  if (!unknown.empty())
    throw DataError(concat_text(corpus.name, ": the phones of model.init lack ", abbreviate_list(unknown),
                                "; ", kNewPhones));
}

// Returns whether the folder of the part `split`, which is "valid" or "test", exists. Throws DataError if the
// config names a folder that does not exist.
bool has_part_folder(const Config& config, const std::string& split, const DataAccessOptions& data) {
  if (!require_catalogue_entry(config.data.dataset).has_part_folders()) return false;
  const fs::path part = find_speech_corpus_folder(config, data) / part_name(config, split);
  if (is_folder(part)) return true;
  const SpeechDataOptions d = get_speech_options(config);
  const std::string& named = split == "valid" ? d.valid_part : d.test_part;
  if (!named.empty())
    throw DataError(concat_text(part.string(), ": no such folder; data.", split, "_part names it"));
  return false;
}

}  // namespace

std::optional<fs::path> find_lexicon(const Config& config, const DataAccessOptions& data) {
  if (is_text_phones(config) ||
      require_catalogue_entry(config.data.dataset).label_kind == SpeechLabelKind::phones)
    return std::nullopt;
  if (const std::string lexicon = get_speech_options(config).lexicon; !lexicon.empty()) return lexicon;
  return find_cmudict(data.data_dir);
}

fs::path find_speech_corpus_folder(const Config& config, const DataAccessOptions& data) {
  const fs::path folder = get_speech_options(config).path;
  if (folder.empty())
    return require_dataset_folder(require_catalogue_entry(config.data.dataset), data.data_dir);
  if (!is_folder(folder))
    throw DataError(folder.string() + ": no such folder; data.path names the folder of the corpus");
  return folder;
}

void check_part_folders(const Config& config, const DataAccessOptions& data) {
  for (const char* split : {"valid", "test"}) has_part_folder(config, split, data);
}

std::vector<std::string> list_corpus_part_folders(const Config& config, const DataAccessOptions& data) {
  if (!require_catalogue_entry(config.data.dataset).has_part_folders()) return {};
  std::vector<std::string> parts = {part_name(config, "train").string()};
  if (has_part_folder(config, "valid", data)) parts.push_back(part_name(config, "valid").string());
  const fs::path test = part_name(config, "test");
  const SpeechDataOptions d = get_speech_options(config);
  const bool needed = parts.size() == 1 && d.validation == 0;
  if (needed || !d.test_part.empty() || is_folder(find_speech_corpus_folder(config, data) / test))
    parts.push_back(test.string());
  return parts;
}

Corpus read_corpus_part(const Config& config, const std::string& split, const DataAccessOptions& data) {
  const fs::path folder = find_speech_corpus_folder(config, data);
  const bool own_valid = has_part_folder(config, "valid", data);
  const int64_t validation = get_speech_options(config).validation;
  const bool holds_out = validation > 0 && !own_valid;
  if (split == "valid" && !own_valid && !holds_out)
    throw ConfigError(config.data.dataset +
                      " has no part \"valid\" of its own; data.validation holds utterances out");
  const bool from_train = split == "train" || (split == "valid" && !own_valid);
  Corpus corpus = read_part(config, folder, from_train ? "train" : split, data.allow_commands);
  find_phones(config, data, corpus);
  if (from_train && holds_out) {
    auto held = hold_out(corpus.utterances, validation);
    if (split == "valid") corpus.utterances = std::move(held);
  }
  corpus.name = config.data.dataset + " " + split;
  return corpus;
}

std::string choose_speech_evaluation_split(const Config& config, const DataAccessOptions& data) {
  return get_speech_options(config).validation > 0 || has_part_folder(config, "valid", data) ? "valid"
                                                                                             : "test";
}

std::vector<int64_t> SpeechPart::frame_counts() const {
  std::vector<int64_t> result;
  for (const int64_t i : usable_indices) result.push_back(dataset->frame_count(i));
  return result;
}

SpeechPart read_speech_part(const Config& config, const std::string& split, const DataAccessOptions& data,
                            const SpeechMetadata* trained_metadata, const PhoneTable* phone_table) {
  const SpeechDataOptions d = get_speech_options(config);
  const Corpus corpus = read_corpus_part(config, split, data);
  SpeechDatasetOptions options;
  options.feature_options = make_feature_options(config, !trained_metadata);
  options.normalization = make_normalization(config);
  options.normalize_variance = d.cmvn_variance;
  options.delta_order = d.deltas;
  const auto model = read_options<SpeechModelOptions>(config);
  options.subsampling = model.subsampling;
  options.reject_faulty_utterances = d.bad_utterances == "refuse";
  options.purpose = trained_metadata ? SpeechPurpose::scoring : SpeechPurpose::training;
  options.limit = split == "train" ? config.data.limit : config.data.eval_limit;
  PhoneTable phones;
  if (trained_metadata) {
    phones = trained_metadata->phone_table;
    options.global_statistics = trained_metadata->global_statistics;
    if (options.normalization == Normalization::global) get_global_statistics(*trained_metadata);
  } else {
    phones = make_training_phones(config, corpus);
    if (phone_table) check_phones(config, corpus, phones, *phone_table);
    if (phone_table) phones = *phone_table;
  }
  SpeechPart part;
  part.split = split;
  part.dataset = std::make_shared<const SpeechDataset>(corpus, std::move(phones), options);
  if (trained_metadata && part.dataset->dims() != trained_metadata->feature_dim) {
    const std::string text =
        concat_text(corpus.name, ": features of ", part.dataset->dims(),
                    " dims, but the model was trained on ", trained_metadata->feature_dim);
    // In an archive, the number of features per frame is a property of the data, so a mismatch is a
    // DataError. For other sources, the config determines this number, so a mismatch is a ConfigError.
    if (part.dataset->utterance(0).source == SpeechSource::ark) throw DataError(text);
    throw ConfigError(text);
  }
  part.unusable_count = static_cast<int64_t>(part.dataset->report().faults.size()) + corpus.dropped_count;
  const bool limited = model.encoder_kind == SpeechEncoderKind::transformer;
  for (int64_t i = 0; i < part.dataset->size(); ++i) {
    const int64_t frames = part.dataset->frame_count(i);
    const bool too_long = limited && frames > model.max_frames;
    const bool too_short = count_subsampled_steps(frames, model.subsampling) == 0;
    (too_long    ? part.too_long_indices
     : too_short ? part.too_short_indices
                 : part.usable_indices)
        .push_back(i);
  }
  if (part.usable_indices.empty() && !trained_metadata)
    throw DataError(
        concat_text(corpus.name, ": all utterances are longer than model.max_frames = ", model.max_frames));
  return part;
}

SpeechMetadata make_speech_metadata(const SpeechPart& part) {
  const std::vector<int64_t> frames = part.frame_counts();
  SpeechMetadata metadata{.feature_dim = part.dataset->dims(),
                          .phone_table = part.dataset->phone_table(),
                          .global_statistics = std::nullopt,
                          .max_frame_count = *std::max_element(frames.begin(), frames.end())};
  if (part.dataset->options().normalization == Normalization::global)
    metadata.global_statistics = part.dataset->global_statistics();
  return metadata;
}

SpeechModelOptions make_speech_model_options(const Config& config, const SpeechMetadata& metadata) {
  auto options = read_options<SpeechModelOptions>(config);
  options.features = metadata.feature_dim;
  options.classes = metadata.phone_table.class_count();
  return options;
}

std::unique_ptr<SpeechModel> make_speech_model(const Config& config, const SpeechMetadata& metadata,
                                               Device device) {
  return build_model<SpeechModel>(config, device, make_speech_model_options(config, metadata));
}

}  // namespace tapeformer
