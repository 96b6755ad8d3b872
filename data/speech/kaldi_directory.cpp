#include "data/speech/kaldi_directory.h"

#include <algorithm>
#include <map>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "core/system/files.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/speech/phones/phones.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

struct Entry {
  TextLine line;
  Words values;
};
using Table = std::map<std::string, Entry>;

// A fault of a data directory. If `in_utterance` is true, the fault makes only one utterance unusable.
// Otherwise, the fault makes the whole directory unusable.
struct Problem {
  std::string text;
  bool in_utterance = false;
};
using Problems = std::vector<Problem>;

void report(Problems& problems, const TextLine& line, const std::string& message) {
  problems.push_back({line.location() + ": " + message});
}

void report_utterance(Problems& problems, const TextLine& line, const std::string& message) {
  problems.push_back({line.location() + ": " + message, true});
}

bool is_usable(const Problems& problems) {
  return std::all_of(problems.begin(), problems.end(), [](const Problem& p) { return p.in_utterance; });
}

bool has_blank(const Words& words) {
  return std::find(words.begin(), words.end(), PhoneTable::kBlankName) != words.end();
}

Table read_table(const fs::path& path, Problems& problems) {
  Table table;
  std::string previous;
  for (const TextLine& line : read_lines(path)) {
    Words words = split_words(line.text);
    if (words.empty()) {
      report(problems, line, "an empty line");
      continue;
    }
    const std::string id = words.front();
    words.erase(words.begin());
    if (id < previous)
      report(problems, line, "\"" + id + "\" after \"" + previous + "\": not sorted (LC_ALL=C sort)");
    previous = std::max(previous, id);
    if (const auto [old, added] = table.try_emplace(id, Entry{line, words}); !added)
      report(problems, line, concat_text("\"", id, "\" is a duplicate of line ", old->second.line.number));
  }
  if (table.empty()) problems.push_back({path.string() + ": contains no entries"});
  return table;
}

// Returns whether the path exists. If the path cannot be accessed, returns false.
bool path_exists_at(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

fs::path resolve(const fs::path& folder, const std::string& name) {
  const fs::path path = name;
  return path.is_absolute() || path_exists_at(path) ? path : folder / path;
}

// Returns the text after the id at the start of a line, without surrounding white space. The text is not
// split into words, because paths and commands can contain spaces and quotes.
std::string after_id(const std::string& line) {
  const char* const spaces = " \t";
  const size_t id = line.find_first_not_of(spaces), after = line.find_first_of(spaces, id);
  const size_t first = line.find_first_not_of(spaces, after);
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(spaces) + 1 - first);
}

// Sets the source of an utterance from a line "id path.ark:offset" or "id path.ark:offset[range]".
void set_matrix(const fs::path& folder, const Entry& entry, Utterance& utterance, Problems& problems) {
  std::string text = after_id(entry.line.text);
  const auto fail = [&](const std::string& expected) {
    report(problems, entry.line, "expected " + expected + ", found \"" + after_id(entry.line.text) + "\"");
  };
  if (const size_t bracket = text.rfind('['); text.ends_with(']') && bracket != std::string::npos) {
    const auto range = parse_matrix_range(text.substr(bracket + 1, text.size() - bracket - 2));
    if (!range) return fail("a range such as [0:10] or [0:10,2:5]");
    utterance.matrix_range = *range;
    text.resize(bracket);
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || text.size() - colon > 18 ||
      text.find_first_not_of("0123456789", colon + 1) != std::string::npos)
    return fail("\"id path.ark:offset\"");
  utterance.source = SpeechSource::ark;
  utterance.path = resolve(folder, text.substr(0, colon));
  utterance.archive_offset = std::stoll(text.substr(colon + 1));
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(utterance.path, error));
  if (error)
    report_utterance(problems, entry.line, utterance.path.string() + ": no such file");
  else if (utterance.archive_offset >= size)
    report_utterance(problems, entry.line,
                     concat_text("offset ", utterance.archive_offset, " lies outside of ",
                                 utterance.path.string(), " with ", size, " bytes"));
}

// The source of a recording. Either `path` is the file of the recording, or `command` is a shell command that
// writes the recording to its standard output.
struct Recording {
  fs::path path;
  std::string command;
};

std::string command_of(const std::string& line) {
  const std::string text = after_id(line);
  return text.substr(0, text.rfind('|'));
}

Recording parse_recording(const fs::path& folder, const Entry& entry, bool allow_commands,
                          Problems& problems) {
  if (!entry.values.empty() && entry.values.back().ends_with('|')) {
    if (!allow_commands) {
      report(problems, entry.line,
             "a command instead of a file; commands are run only with " +
                 name_option("CorpusOptions::allow_commands"));
      return {};
    }
    const std::string command = command_of(entry.line.text);
    if (!split_words(command).empty()) return {{}, command};
    report(problems, entry.line, "the command is empty");
    return {};
  }
  if (entry.values.empty()) {
    report(problems, entry.line, "expected \"id path\"");
    return {};
  }
  const fs::path path = resolve(folder, after_id(entry.line.text));
  if (!path_exists_at(path)) report_utterance(problems, entry.line, path.string() + ": no such file");
  return {path, ""};
}

int64_t parse_channel(const Entry& entry) {
  const std::string& text = entry.values[3];
  if (text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos)
    entry.line.fail("expected the number of a channel, from 0, found \"" + text + "\"");
  return std::stoll(text);
}

// Returns one utterance for each segment in the file `segments`. If this file does not exist, returns one
// utterance for each recording in wav.scp.
std::vector<Utterance> recordings(const fs::path& folder, bool allow_commands, Problems& problems) {
  std::vector<Utterance> utterances;
  const Table files = read_table(folder / "wav.scp", problems);
  std::map<std::string, Recording> found;
  for (const auto& [id, entry] : files) found[id] = parse_recording(folder, entry, allow_commands, problems);
  if (!path_exists(folder / "segments")) {
    for (const auto& [id, recording] : found) {
      Utterance utterance;
      utterance.id = id;
      utterance.location = files.at(id).line.location();
      utterance.path = recording.path;
      utterance.command = recording.command;
      utterances.push_back(std::move(utterance));
    }
    return utterances;
  }
  for (const auto& [id, entry] : read_table(folder / "segments", problems)) {
    try {
      if (entry.values.size() != 3 && entry.values.size() != 4)
        entry.line.fail("expected \"id recording start end\" or \"id recording start end channel\"");
      const auto file = found.find(entry.values[0]);
      if (file == found.end()) entry.line.fail("recording \"" + entry.values[0] + "\" is not in wav.scp");
      Utterance utterance;
      utterance.id = id;
      utterance.location = entry.line.location();
      utterance.path = file->second.path;
      utterance.command = file->second.command;
      utterance.begin_seconds = parse_number(entry.values[1], entry.line);
      utterance.end_seconds = parse_number(entry.values[2], entry.line);
      if (*utterance.end_seconds == -1) utterance.end_seconds.reset();  // -1 means the end of the recording
      if (utterance.begin_seconds < 0 ||
          (utterance.end_seconds && *utterance.end_seconds <= utterance.begin_seconds))
        entry.line.fail("expected 0 <= start < end");
      if (entry.values.size() == 4) utterance.channel = parse_channel(entry);
      utterances.push_back(std::move(utterance));
    } catch (const DataError& error) {
      problems.push_back({error.what()});
    }
  }
  return utterances;
}

Corpus read_lists(const fs::path& folder, bool allow_commands, Problems& problems) {
  Corpus corpus{folder.string(), {}};
  if (!is_folder(folder)) throw DataError(folder.string() + ": no such folder");
  if (path_exists(folder / "feats.scp")) {
    for (const auto& [id, entry] : read_table(folder / "feats.scp", problems)) {
      Utterance utterance;
      utterance.id = id;
      utterance.location = entry.line.location();
      set_matrix(folder, entry, utterance, problems);
      corpus.utterances.push_back(std::move(utterance));
    }
  } else {
    corpus.utterances = recordings(folder, allow_commands, problems);
  }
  const Table texts = read_table(folder / "text", problems);
  const Table speakers = path_exists(folder / "utt2spk") ? read_table(folder / "utt2spk", problems) : Table();
  std::map<std::string, bool> known;
  for (Utterance& utterance : corpus.utterances) {
    known[utterance.id] = true;
    const auto text = texts.find(utterance.id), speaker = speakers.find(utterance.id);
    if (text == texts.end())
      problems.push_back({(folder / "text").string() + ": utterance \"" + utterance.id + "\" is missing"});
    else if (utterance.words = text->second.values; utterance.words.empty())
      report_utterance(problems, text->second.line, "an empty transcript");
    else if (has_blank(utterance.words))
      report_utterance(problems, text->second.line, PhoneTable::kBlankNameFault);
    utterance.speaker = utterance.id;
    if (speaker == speakers.end()) {
      if (!speakers.empty())
        problems.push_back(
            {(folder / "utt2spk").string() + ": utterance \"" + utterance.id + "\" is missing"});
    } else if (speaker->second.values.size() != 1) {
      report(problems, speaker->second.line, "expected \"id speaker\"");
    } else {
      utterance.speaker = speaker->second.values[0];
    }
  }
  for (const Table& table : {texts, speakers})
    for (const auto& [id, entry] : table)
      if (!known.contains(id))
        report(problems, entry.line, "\"" + id + "\" has neither a recording nor features");
  return corpus;
}

// Appends the faults that `content_check` finds to `problems`. Skips utterances whose file is missing or
// whose archive offset is outside of the file, because read_lists() reports these utterances.
void check_contents(const Corpus& corpus, UtteranceChecker& content_check, Problems& problems) {
  for (const Utterance& utterance : corpus.utterances) try {
      if (utterance.command.empty() && !path_exists_at(utterance.path)) continue;
      if (utterance.source == SpeechSource::ark && utterance.archive_offset >= read_file_size(utterance.path))
        continue;
      for (const std::string& fault : content_check(utterance))
        problems.push_back({utterance.location + ": " + fault, true});
    } catch (const DataError& error) {
      problems.push_back({utterance.location + ": " + error.what(), true});
    }
}

Faults list_messages(Problems& problems) {
  Faults texts;
  for (Problem& problem : problems) texts.push_back(std::move(problem.text));
  return texts;
}

}  // namespace

Corpus read_kaldi_directory(const fs::path& folder, bool allow_commands) {
  Problems problems;
  Corpus corpus = read_lists(folder, allow_commands, problems);
  if (!is_usable(problems)) throw DataError(format_faults(list_messages(problems)));
  return corpus;
}

bool is_kaldi_directory(const fs::path& folder) {
  std::error_code ignored;
  for (const char* list : {"wav.scp", "feats.scp", "text"})
    if (fs::exists(folder / list, ignored)) return true;
  return false;
}

Faults find_kaldi_faults(const fs::path& folder, UtteranceChecker& content_check, bool allow_commands) {
  Problems problems;
  try {
    check_contents(read_lists(folder, allow_commands, problems), content_check, problems);
  } catch (const DataError& error) {
    problems.push_back({error.what()});
  }
  return list_messages(problems);
}

void copy_words_to_phones(Corpus& corpus) {
  for (Utterance& utterance : corpus.utterances)
    if (has_blank(utterance.words))
      utterance.fault = PhoneTable::kBlankNameFault;
    else
      utterance.phones = utterance.words;
}

void write_kaldi_directory(const fs::path& folder, const Corpus& corpus) {
  std::map<std::string, const Utterance*> sorted;
  for (const Utterance& utterance : corpus.utterances) sorted[utterance.id] = &utterance;
  std::string wav, text, speakers;
  for (const auto& [id, utterance] : sorted) {
    wav += id + " " + utterance->path.string() + "\n";
    speakers += id + " " + utterance->speaker + "\n";
    text += id + " " + join_words(utterance->phones.empty() ? utterance->words : utterance->phones) + "\n";
  }
  fs::create_directories(folder);
  replace_file(folder / "wav.scp", wav);
  replace_file(folder / "utt2spk", speakers);
  replace_file(folder / "text", text);
}

}  // namespace tapeformer
