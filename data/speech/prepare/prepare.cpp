#include "data/speech/prepare/prepare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/printable.h"
#include "data/audio/audio.h"
#include "data/batches/loader.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/prepare/pronunciation.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Minimum number of speakers for which the split unit "auto" selects "speaker".
constexpr size_t kSpeakersToDivide = 10;
constexpr std::array<const char*, 3> kSplits = {"train", "valid", "test"};
constexpr char kUnfinishedParts[] = ".unfinished";
constexpr char kLexiconName[] = "lexicon.txt";
constexpr char kUnknownWords[] = "unknown-words.txt", kProposals[] = "proposed-lexicon.txt";
constexpr char kProposalsHeading[] =
    ";;; Proposed by espeak-ng. Review every line, then prepare again with this file as an additional "
    "lexicon.\n";

// Extensions of recordings that are not read.
constexpr std::array<const char*, 11> kOtherExtensions = {".mp3", ".m4a",  ".opus", ".aac", ".wma", ".webm",
                                                          ".mp4", ".aiff", ".aif",  ".caf", ".amr"};

bool is_recording(const fs::path& path) {
  constexpr std::array<const char*, 6> kExtensions = {".wav", ".flac", ".ogg", ".oga", ".sph", ".nist"};
  const std::string extension = to_ascii_lower_case(path.extension().string());
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

// Replaces characters that ids and speakers in Kaldi data directories must not contain.
std::string as_word(std::string text) {
  for (char& c : text)
    if (c == '/')
      c = '-';
    else if (std::isspace(static_cast<unsigned char>(c)))
      c = '_';
  return text;
}

class Recordings {
 public:
  explicit Recordings(const fs::path& folder) : folder_(fs::absolute(folder).lexically_normal()) {
    if (!is_folder(folder_)) throw DataError(folder.string() + ": no such folder of recordings");
    int64_t unreadable_count = 0, other_count = 0;
    std::set<std::string> other_extensions;
    for (const auto& entry : list_folder_tree(folder_)) {
      std::error_code ignored;
      const std::string extension = to_ascii_lower_case(entry.path().extension().string());
      if (is_recording(entry.path()) && entry.is_regular_file(ignored))
        paths_.push_back(entry.path());
      else if (is_recording(entry.path()) && !entry.is_directory(ignored))
        ++unreadable_count;
      else if (std::find(kOtherExtensions.begin(), kOtherExtensions.end(), extension) !=
               kOtherExtensions.end()) {
        ++other_count;
        other_extensions.insert(extension);
      }
    }
    if (paths_.empty())
      throw DataError(concat_text(
          folder.string(), ": contains no recordings (.wav, .flac, .ogg, .sph)",
          unreadable_count == 0
              ? ""
              : concat_text("; ", unreadable_count,
                            " entries with such names are links without a target or not files"),
          other_count == 0 ? ""
                           : concat_text("; convert its ", other_count, " ",
                                         join_words({other_extensions.begin(), other_extensions.end()}),
                                         " files, for example with ffmpeg")));
    for (size_t i = 0; i < paths_.size(); ++i)
      for (const std::string& key : keys_of(relative(i))) {
        std::vector<size_t>& found = keys_[key];  // keys_of() may return the same key twice
        if (found.empty() || found.back() != i) found.push_back(i);
      }
  }

  size_t size() const { return paths_.size(); }
  const fs::path& path(size_t i) const { return paths_[i]; }
  fs::path relative(size_t i) const { return paths_[i].lexically_relative(folder_); }
  std::string id(size_t i) const { return as_word(relative(i).replace_extension().string()); }

  // Returns the index of a recording. `name` is a path or a file name, with or without extension, or an id.
  // Throws DataError with `location` if no recording or several recordings match.
  size_t find(const std::string& name, const std::string& location) const {
    fs::path wanted = fs::path(name).lexically_normal();
    if (wanted.is_absolute()) wanted = wanted.lexically_relative(folder_);
    for (const std::string& key : keys_of(wanted)) {
      const auto found = keys_.find(key);
      if (found == keys_.end()) continue;
      if (found->second.size() == 1) return found->second.front();
      throw DataError(location + ": several recordings match \"" + name + "\", such as " +
                      path(found->second[0]).string() + " and " + path(found->second[1]).string());
    }
    throw DataError(location + ": no recording matches \"" + name + "\"");
  }

 private:
  // Returns the names that match a recording, the most specific name first.
  static std::vector<std::string> keys_of(const fs::path& relative) {
    fs::path bare = relative;
    bare.replace_extension();
    return {relative.string(), bare.string(), as_word(bare.string()), relative.filename().string(),
            bare.filename().string()};
  }

  fs::path folder_;
  std::vector<fs::path> paths_;
  std::map<std::string, std::vector<size_t>> keys_;
};

std::string speaker_by_name(const Recordings& recordings, size_t i, const std::string& rule) {
  const fs::path relative = recordings.relative(i);
  if (rule == "folder" && relative.has_parent_path()) return as_word(relative.begin()->string());
  if (rule == "prefix") {
    const std::string name = as_word(relative.filename().replace_extension().string());
    return name.substr(0, name.find_first_of("-_"));
  }
  return "";
}

std::string speaker_rule(const Recordings& recordings, const std::string& wanted) {
  if (wanted != "auto") return wanted;
  std::set<std::string> folders;
  for (size_t i = 0; i < recordings.size(); ++i) folders.insert(speaker_by_name(recordings, i, "folder"));
  const bool several = folders.size() > 1 && folders.size() < recordings.size() && !folders.contains("");
  return several ? "folder" : "none";
}

Lexicon merge_lexicons(const std::vector<fs::path>& paths) {
  Lexicon all;
  std::string names;
  for (const fs::path& path : paths) {
    all.add(Lexicon::read(path));
    names += (names.empty() ? "" : ", ") + path.string();
  }
  if (all.size() == 0) throw DataError(names + ": contains no words of a lexicon");
  return all;
}

struct Preparation {
  const SpeechPreparationOptions& options;
  const Lexicon lexicon;
  const Recordings recordings;
  SpeechPreparationReport report = {};
  Corpus corpus = {};
  std::map<std::string, UnknownWord> unknown = {};
  std::set<size_t> used = {};                // recordings that have a transcript
  std::set<fs::path> transcript_paths = {};  // files of the transcripts of these recordings
};

// Adds the rate and the number of channels of a recording to the report. Throws DataError if the recording
// cannot be read or contains no samples.
void add_audio_info(const fs::path& path, SpeechPreparationReport& report) {
  const AudioInfo info = read_audio_info(path);
  if (info.sample_count == 0) throw DataError(path.string() + ": contains no samples");
  ++report.recording_counts_by_rate[info.rate];
  report.multichannel_count += info.channel_count > 1;
}

// Adds the utterance of a transcript to p.corpus. If the lexicon lacks words of the transcript, adds these
// words to p.unknown and leaves the utterance out. Throws DataError if the transcript or its recording cannot
// be used.
void add_utterance(const Transcript& transcript, const std::string& rule, Preparation& p) {
  const size_t i = p.recordings.find(transcript.recording, transcript.location);
  if (!p.used.insert(i).second)
    throw DataError(transcript.location + ": \"" + transcript.recording + "\" has a transcript already");
  p.transcript_paths.insert(transcript.location.substr(0, transcript.location.rfind(':')));
  if (p.recordings.path(i).string().find_first_of("\r\n") != std::string::npos)
    throw DataError(p.recordings.path(i).string() +
                    ": the path contains a line break, which wav.scp cannot represent");
  const NormalizedText text = normalize_transcript(transcript.text, p.lexicon);
  if (text.words.empty()) throw DataError(transcript.location + ": the transcript has no words");
  for (const std::string& word : text.unknown) {
    UnknownWord& unknown = p.unknown.try_emplace(word, UnknownWord{word, transcript.location}).first->second;
    ++unknown.count;
  }
  add_audio_info(p.recordings.path(i), p.report);
  if (!text.unknown.empty()) {
    ++p.report.unknown_word_utterance_count;
    return;
  }
  Utterance utterance;
  utterance.speaker =
      as_word(transcript.speaker.empty() ? speaker_by_name(p.recordings, i, rule) : transcript.speaker);
  utterance.id = p.recordings.id(i);
  require_utf8(utterance.id, p.recordings.path(i).string());
  // Kaldi requires that utterances sorted by id are also sorted by speaker, so the speaker becomes a prefix
  // of the id.
  if (!utterance.speaker.empty() && !utterance.id.starts_with(utterance.speaker))
    utterance.id = utterance.speaker + "-" + utterance.id;
  if (utterance.speaker.empty()) utterance.speaker = utterance.id;
  utterance.path = p.recordings.path(i);
  utterance.words = text.words;
  utterance.location = transcript.location;
  p.corpus.utterances.push_back(std::move(utterance));
}

// Keeps only the first utterance of each id. For example, two recordings have the same id if their paths
// differ only in the file extension.
void drop_equal_ids(Preparation& p) {
  std::map<std::string, std::string> paths;
  std::erase_if(p.corpus.utterances, [&](const Utterance& utterance) {
    const auto [old, added] = paths.emplace(utterance.id, utterance.path.string());
    if (!added)
      p.report.faults.push_back(utterance.path.string() + ": has the same id \"" + utterance.id + "\" as " +
                                old->second);
    return !added;
  });
}

void read_utterances(Preparation& p) {
  const auto transcripts = read_transcripts(p.options.transcript_path, p.options.columns, &p.report.faults);
  const std::string rule = speaker_rule(p.recordings, p.options.speaker_rule);
  p.report.transcript_count = static_cast<int64_t>(transcripts.size());
  p.report.recording_count = static_cast<int64_t>(p.recordings.size());
  for (const Transcript& transcript : transcripts) try {
      add_utterance(transcript, rule, p);
    } catch (const DataError& error) {
      p.report.faults.push_back(error.what());
    }
  p.report.untranscribed_recording_count = p.report.recording_count - static_cast<int64_t>(p.used.size());
  drop_equal_ids(p);
  for (auto& [word, unknown] : p.unknown) p.report.unknown_words.push_back(unknown);
  std::stable_sort(p.report.unknown_words.begin(), p.report.unknown_words.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
}

// Writes proposed-lexicon.txt. If the file exists, keeps the existing lines, which the user may have edited.
void write_proposals(Preparation& p) {
  const std::set<std::string> phones = p.lexicon.phones();
  if (!has_only_arpabet_phones(p.lexicon))
    throw ConfigError("proposals use the phones of CMUdict, but the lexicon uses other phones: " +
                      abbreviate_list({phones.begin(), phones.end()}));
  const fs::path path = p.options.output_folder / kProposals;
  std::string text = kProposalsHeading;
  Lexicon old;
  if (fs::exists(path)) {
    old = Lexicon::read(path);
    text.clear();
    for (const TextLine& line : read_lines(path)) text += line.text + "\n";
  }
  for (const UnknownWord& unknown : p.report.unknown_words) {
    if (old.find(unknown.word)) continue;
    const bool letters = unknown.word.find_first_of("0123456789%&$#@+=") == std::string::npos;
    const auto proposal =
        letters ? propose_pronunciation(unknown.word, p.options.espeak_program) : std::nullopt;
    p.report.proposed_pronunciation_count += proposal.has_value();
    if (proposal) text += unknown.word + " " + join_words(*proposal) + "\n";
  }
  replace_file(path.string(), text);
}

// Returns whether the first line of a file has the form that write_unknown_words() writes.
bool is_list_of_unknown_words(const fs::path& path) {
  std::ifstream file(path);
  std::string count, word, location;
  file >> count >> word >> location;
  return !location.empty() && count.find_first_not_of("0123456789") == std::string::npos;
}

void write_unknown_words(Preparation& p) {
  const fs::path path = p.options.output_folder / kUnknownWords;
  if (p.report.unknown_words.empty()) {
    fs::remove(path);
    return;
  }
  std::string text;
  for (const UnknownWord& unknown : p.report.unknown_words)
    text += concat_text(unknown.count, " ", unknown.word, " ", escape_line(unknown.location), "\n");
  replace_file(path.string(), text);
}

// Returns the split of every utterance, as an index into kSplits.
std::vector<size_t> divide(const Corpus& corpus, const SpeechPreparationOptions& options) {
  std::map<std::string, std::vector<size_t>> groups;
  std::set<std::string> speakers;
  for (const Utterance& utterance : corpus.utterances) speakers.insert(utterance.speaker);
  const bool many = speakers.size() >= kSpeakersToDivide;
  const bool by_speaker = options.split_unit == "speaker" || (options.split_unit == "auto" && many);
  for (size_t i = 0; i < corpus.utterances.size(); ++i)
    groups[by_speaker ? corpus.utterances[i].speaker : corpus.utterances[i].id].push_back(i);
  std::vector<const std::vector<size_t>*> list;
  for (const auto& [name, members] : groups) list.push_back(&members);
  const auto order = make_epoch_permutation(options.seed, 0, static_cast<int64_t>(list.size()));
  const auto total = static_cast<double>(corpus.utterances.size());
  std::vector<size_t> parts(corpus.utterances.size(), 0);
  size_t next = 0;
  for (const auto& [part, share] :
       {std::pair<size_t, double>{1, options.valid_share}, {2, options.test_share}})
    for (double filled = 0; filled < std::ceil(share * total - 1e-9) && next < list.size(); ++next)
      for (const size_t i : *list[static_cast<size_t>(order[next])]) {
        parts[i] = part;
        ++filled;
      }
  for (size_t part = 0; part < 3; ++part) {
    const bool wanted = part == 0 || (part == 1 ? options.valid_share : options.test_share) > 0;
    if (wanted && std::find(parts.begin(), parts.end(), part) == parts.end())
      throw ConfigError(concat_text("the ", list.size(), by_speaker ? " speakers" : " utterances",
                                    " are too few: nothing is left for ", kSplits[part]));
  }
  return parts;
}

// Accepts a path that does not exist, an empty folder, and a folder that contains only files of a Kaldi data
// directory. Throws ConfigError for other paths.
void require_replaceable(const fs::path& folder) {
  if (!fs::exists(folder)) return;
  if (fs::is_directory(folder) && fs::is_empty(folder)) return;
  const std::set<std::string> lists = {"wav.scp", "text", "utt2spk", "spk2utt", "words"};
  bool good = fs::is_directory(folder);
  if (good)
    for (const auto& entry : fs::directory_iterator(folder))
      good = good && lists.contains(entry.path().filename());
  if (!good)
    throw ConfigError(folder.string() +
                      ": exists and is not a Kaldi data directory, so it is not replaced; choose another "
                      "output folder");
}

// The folder of unfinished parts. The constructor removes the leftovers of an interrupted preparation. The
// destructor removes the folder.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(fs::path path) : path_(std::move(path)) { fs::remove_all(path_); }
  ~UnfinishedFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_parts(Preparation& p) {
  const fs::path& out = p.options.output_folder;
  const auto parts = divide(p.corpus, p.options);
  std::array<Corpus, 3> divided;
  for (size_t i = 0; i < parts.size(); ++i) divided[parts[i]].utterances.push_back(p.corpus.utterances[i]);
  std::map<std::string, Words> pronounced;
  std::set<std::string> speakers;
  for (const Utterance& utterance : p.corpus.utterances) {
    speakers.insert(utterance.speaker);
    for (const std::string& word : utterance.words) pronounced[word] = *p.lexicon.find(word);
  }
  std::string lexicon;
  for (const auto& [word, phones] : pronounced) lexicon += word + " " + join_words(phones) + "\n";
  const UnfinishedFolder unfinished(out / kUnfinishedParts);
  for (size_t part = 0; part < 3; ++part)
    if (!divided[part].utterances.empty())
      write_kaldi_directory(unfinished.path() / kSplits[part], divided[part]);
  for (const char* part : kSplits) {
    fs::remove_all(out / part);
    if (fs::exists(unfinished.path() / part)) rename_path(unfinished.path() / part, out / part);
  }
  replace_file((out / kLexiconName).string(), lexicon);
  p.report.train_count = static_cast<int64_t>(divided[0].utterances.size());
  p.report.valid_count = static_cast<int64_t>(divided[1].utterances.size());
  p.report.test_count = static_cast<int64_t>(divided[2].utterances.size());
  p.report.speaker_count = static_cast<int64_t>(speakers.size());
}

void check_output_files(const SpeechPreparationOptions& options) {
  const fs::path lexicon = options.output_folder / kLexiconName,
                 unknown = options.output_folder / kUnknownWords;
  const auto exists = [&](const char* name) { return path_exists(options.output_folder / name); };
  const auto refuse_to_replace = [](const fs::path& path, const std::string& reason) {
    throw ConfigError(
        concat_text(path.string(), ": ", reason, ", so it is not replaced; choose another output folder"));
  };
  // An interrupted preparation can leave lexicon.txt and only some of the folders train, valid and test.
  if (exists(kLexiconName) && !exists(kUnfinishedParts) &&
      std::none_of(kSplits.begin(), kSplits.end(), exists))
    refuse_to_replace(lexicon, "exists and does not belong to a prepared corpus");
  if (exists(kUnknownWords) && !is_list_of_unknown_words(unknown))
    refuse_to_replace(unknown, "exists and is not a list of unknown words");
}

// Returns the paths that prepare_speech() replaces or removes. Does not include the list of proposals, whose
// existing lines are kept.
std::vector<fs::path> list_replaced_paths(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const char* name : {kLexiconName, kUnknownWords, kUnfinishedParts}) paths.push_back(folder / name);
  for (const char* part : kSplits) paths.push_back(folder / part);
  return paths;
}

// Throws ConfigError if a lexicon, a recording or its transcript would be replaced.
void check_inputs(const Preparation& p) {
  const SpeechPreparationOptions& options = p.options;
  std::vector<fs::path> inputs(p.transcript_paths.begin(), p.transcript_paths.end());
  if (!is_folder(options.transcript_path)) inputs.push_back(options.transcript_path);
  for (const size_t i : p.used) inputs.push_back(p.recordings.path(i));
  if (options.propose_pronunciations)  // the list of proposals may be a lexicon
    refuse_to_replace_inputs({options.output_folder / kProposals}, inputs);
  inputs.insert(inputs.end(), options.lexicon_paths.begin(), options.lexicon_paths.end());
  refuse_to_replace_inputs(list_replaced_paths(options.output_folder), inputs);
}

void check_options(const SpeechPreparationOptions& options) {
  if (!(options.valid_share >= 0 && options.test_share >= 0 && options.valid_share + options.test_share < 1))
    throw ConfigError(
        concat_text("expected shares of valid and test that are at least 0 and have a sum below 1, got ",
                    options.valid_share, " and ", options.test_share));
  for (const char* part : kSplits) require_replaceable(options.output_folder / part);
  check_output_files(options);
}

}  // namespace

SpeechPreparationReport prepare_speech(const SpeechPreparationOptions& options) {
  check_options(options);
  Preparation p{options, merge_lexicons(options.lexicon_paths), Recordings(options.audio_folder)};
  read_utterances(p);
  check_inputs(p);
  std::error_code error;
  fs::create_directories(options.output_folder, error);
  if (error) throw FileError("create", options.output_folder.string(), error.value());
  write_unknown_words(p);
  if (options.propose_pronunciations && !p.unknown.empty()) write_proposals(p);
  if (p.corpus.utterances.empty())
    throw DataError(concat_text(
        "none of the ", p.report.transcript_count, " transcripts and ", p.report.recording_count,
        " recordings can be used; ", p.report.unknown_word_utterance_count,
        " have words that the lexicon lacks",
        p.unknown.empty() ? "" : concat_text(", see ", (options.output_folder / kUnknownWords).string()),
        p.report.faults.empty() ? "" : "\n" + format_faults(p.report.faults)));
  write_parts(p);
  return std::move(p.report);
}

}  // namespace tapeformer
