#include "data/speech/corpus.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 10> kDigits = {"zero", "one", "two",   "three", "four",
                                                 "five", "six", "seven", "eight", "nine"};
constexpr int64_t kDigitTestRecordings = 5;

// Speakers of the core test set of TIMIT: two men and a woman of each dialect region.
constexpr std::array<const char*, 24> kTimitCore = {
    "dab0", "wbt0", "elc0", "tas1", "wew0", "pas0", "jmp0", "lnt0", "pkt0", "lll0", "tls0", "jlm0",
    "bpm0", "klt0", "nlp0", "cmj0", "jdh0", "mgd0", "grt0", "njm0", "dhc0", "jln0", "pam0", "mld0"};

void require_split(const std::string& corpus, const std::string& split) {
  if (split != "train" && split != "test")
    throw ConfigError(corpus + ": expected the split train or test, not \"" + split + "\"");
}

// Returns the files in `folder` and its subfolders that have the given extension, sorted by path. `extension`
// must be in lower case; the case of file names is ignored. Throws DataError if the folder does not exist or
// contains no file with the extension.
std::vector<fs::path> files_below(const fs::path& folder, const std::string& extension) {
  if (!is_folder(folder)) throw DataError(folder.string() + ": no such folder");
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : list_folder_tree(folder))
    if (entry.is_regular_file(ignored) && to_ascii_lower_case(entry.path().extension().string()) == extension)
      files.push_back(entry.path());
  if (files.empty()) throw DataError(folder.string() + ": contains no " + extension + " files");
  return files;
}

// Throws DataError if the corpus is empty, unless `faults` contains the reasons. `missing` names the entries
// that the folder should contain.
void require_utterances(const Corpus& corpus, const fs::path& folder, const Faults* faults,
                        const std::string& missing) {
  if (corpus.utterances.empty() && (!faults || faults->empty()))
    throw DataError(concat_text(folder.string(), ": contains ", missing));
}

class UniqueIds {
 public:
  // Adds an id. `location` is "path:line". Throws DataError if the id is a duplicate.
  void add(const std::string& id, const std::string& location) {
    if (const auto [old, added] = locations_.try_emplace(id, location); !added)
      throw DataError(location + ": \"" + id + "\" is a duplicate of " + old->second);
  }

 private:
  std::map<std::string, std::string> locations_;
};

Words read_timit_labels(const fs::path& path, PhoneSet set, Faults* faults) {
  Words phones;
  for (const TextLine& line : read_lines(path))
    run_and_collect_fault(faults, [&] {
      const Words words = split_words(line.text);
      if (words.size() != 3) line.fail("expected \"start end phone\"");
      if (parse_number(words[0], line) > parse_number(words[1], line)) line.fail("ends before it starts");
      try {
        const std::string phone = map_timit_phone(words[2], set);
        if (!phone.empty()) phones.push_back(phone);
      } catch (const DataError& error) {
        line.fail(error.what());
      }
    });
  if (phones.empty()) throw DataError(path.string() + ": no phones");
  return phones;
}

fs::path path_in_any_case(const fs::path& folder, const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return path_exists(folder / upper) ? folder / upper : folder / to_ascii_lower_case(name);
}

}  // namespace

std::vector<fs::path> list_input_files(const Utterance& utterance) {
  const std::string& location = utterance.location;
  const size_t end = location.find_last_not_of("0123456789");
  const bool has_line = end != std::string::npos && location[end] == ':' && end + 1 < location.size();
  const fs::path list = has_line ? location.substr(0, end) : location, folder = list.parent_path();
  std::vector<fs::path> files = {utterance.path, list};
  for (const char* name : {"wav.scp", "segments", "text", "utt2spk", "an4.dic", "an4_train.transcription",
                           "an4_test.transcription"})
    files.push_back(folder / name);
  return files;
}

PhoneAssignmentReport assign_phones(Corpus& corpus, const Lexicon& lexicon, UnknownWordPolicy unknown) {
  PhoneAssignmentReport report;
  std::set<std::string> all;
  std::vector<Utterance> kept;
  for (Utterance& utterance : corpus.utterances) {
    std::set<std::string> missing;
    if (utterance.phones.empty()) utterance.phones = lexicon.look_up_phones(utterance.words, missing);
    all.insert(missing.begin(), missing.end());
    if (missing.empty())
      kept.push_back(std::move(utterance));
    else
      ++report.dropped_count;
  }
  report.unknown_words.assign(all.begin(), all.end());
  if (unknown == UnknownWordPolicy::refuse && !all.empty())
    throw DataError(concat_text(corpus.name, ": the lexicon lacks words of ", report.dropped_count,
                                " utterances: ", abbreviate_list(report.unknown_words)));
  corpus.utterances = std::move(kept);
  corpus.dropped_count += report.dropped_count;
  return report;
}

namespace {

// Returns an utterance of AN4. `id` is a line of the .fileids file and contains a path without extension.
// `text` is the line with the transcript, in the form "<s> WORDS </s> (id)".
Utterance make_an4_utterance(const fs::path& folder, const TextLine& id, const TextLine& text) {
  const fs::path name = id.text;
  Utterance utterance;
  utterance.id = name.filename().string();
  utterance.location = id.location();
  utterance.speaker = name.parent_path().filename().string();
  utterance.source = SpeechSource::mfc;
  utterance.path = folder / "feat" / (name.string() + ".mfc");
  utterance.words = split_words(text.text);
  if (utterance.words.empty() || utterance.words.back() != "(" + utterance.id + ")")
    text.fail("expected the words of (" + utterance.id + ")");
  utterance.words.pop_back();
  std::erase_if(utterance.words,
                [](const std::string& word) { return word == "<s>" || word == "</s>" || word == "<sil>"; });
  if (utterance.words.empty()) utterance.fault = text.location() + ": an empty transcript";
  return utterance;
}

Utterance make_spoken_digit(const fs::path& path) {
  const std::string id = path.stem().string();
  require_utf8(path.filename().string(), path.string());
  const size_t last = id.rfind('_');
  const bool good = id.size() > 4 && id[0] >= '0' && id[0] <= '9' && id[1] == '_' && last > 1 &&
                    last + 1 < id.size() &&
                    id.find_first_not_of("0123456789", last + 1) == std::string::npos && id.size() - last < 9;
  if (!good) throw DataError(path.string() + ": expected a name like 7_jackson_32.wav");
  Utterance utterance;
  utterance.id = id;
  utterance.location = path.string();
  utterance.speaker = id.substr(2, last - 2);
  utterance.path = path;
  utterance.words = {kDigits[static_cast<size_t>(id[0] - '0')]};
  return utterance;
}

}  // namespace

Corpus read_an4(const fs::path& folder, const std::string& split, Faults* faults) {
  require_split("AN4", split);
  const auto ids = read_lines(folder / "etc" / ("an4_" + split + ".fileids"));
  const fs::path text_path = folder / "etc" / ("an4_" + split + ".transcription");
  const auto texts = read_lines(text_path);
  const Lexicon lexicon = Lexicon::read(folder / "etc" / "an4.dic", faults);
  Corpus corpus{"AN4 " + split, {}};
  UniqueIds unique_ids;
  for (size_t i = 0; i < ids.size(); ++i)
    run_and_collect_fault(faults, [&] {
      if (i >= texts.size()) ids[i].fail("has no line in " + text_path.string());
      Utterance utterance = make_an4_utterance(folder, ids[i], texts[i]);
      unique_ids.add(utterance.id, ids[i].location());
      if (faults) {
        std::set<std::string> unknown;
        utterance.phones = lexicon.look_up_phones(utterance.words, unknown);
        if (!unknown.empty())
          texts[i].fail("the dictionary lacks " + join_words({unknown.begin(), unknown.end()}));
      }
      corpus.utterances.push_back(std::move(utterance));
    });
  run_and_collect_fault(faults, [&] {
    if (texts.size() > ids.size()) texts.back().fail(concat_text("expected ", ids.size(), " transcripts"));
  });
  assign_phones(corpus, lexicon, UnknownWordPolicy::refuse);
  return corpus;
}

Corpus read_spoken_digits(const fs::path& folder, const std::string& split, Faults* faults) {
  require_split("spoken digits", split);
  Corpus corpus{"spoken digits " + split, {}};
  for (const fs::path& path : files_below(folder / "recordings", ".wav"))
    run_and_collect_fault(faults, [&] {
      Utterance utterance = make_spoken_digit(path);
      const int64_t number = std::stol(utterance.id.substr(utterance.id.rfind('_') + 1));
      if ((number < kDigitTestRecordings) == (split == "test"))
        corpus.utterances.push_back(std::move(utterance));
    });
  require_utterances(corpus, folder, faults,
                     concat_text("no recordings with ", split == "test" ? "indices below " : "indices from ",
                                 kDigitTestRecordings, split == "test" ? "" : " on"));
  return corpus;
}

Corpus read_timit(const fs::path& folder, const std::string& split, PhoneSet set, Faults* faults) {
  require_split("TIMIT", split);
  Corpus corpus{"TIMIT " + split, {}};
  UniqueIds unique_ids;
  for (const fs::path& path : files_below(path_in_any_case(folder, split), ".phn")) {
    const std::string sentence = to_ascii_lower_case(path.stem().string());
    const std::string speaker = to_ascii_lower_case(path.parent_path().filename().string());
    if (sentence.starts_with("sa")) continue;
    if (split == "test" && (speaker.size() < 2 || std::find(kTimitCore.begin(), kTimitCore.end(),
                                                            speaker.substr(1)) == kTimitCore.end()))
      continue;
    Utterance utterance;
    utterance.id = speaker + "_" + sentence;
    utterance.location = path.string();
    utterance.speaker = speaker;
    utterance.path = path_in_any_case(path.parent_path(), path.stem().string() + ".wav");
    run_and_collect_fault(faults, [&] {
      require_utf8(utterance.id, path.string());
      unique_ids.add(utterance.id, path.string() + ":1");
    });
    try {
      utterance.phones = read_timit_labels(path, set, faults);
    } catch (const DataError& error) {
      utterance.fault = error.what();
    }
    corpus.utterances.push_back(std::move(utterance));
  }
  require_utterances(corpus, folder, faults,
                     split == "test" ? "no sentences of the core test set" : "no sentences except SA");
  return corpus;
}

Corpus read_librispeech(const fs::path& folder, const std::string& split, Faults* faults) {
  Corpus corpus{"LibriSpeech " + split, {}};
  UniqueIds unique_ids;
  for (const fs::path& path : files_below(folder / split, ".txt")) {
    if (!path.filename().string().ends_with(".trans.txt")) continue;
    for (const TextLine& line : read_lines(path))
      run_and_collect_fault(faults, [&] {
        Words words = split_words(line.text);
        if (words.empty()) line.fail("expected \"id words …\"");
        Utterance utterance;
        if (words.size() == 1) utterance.fault = line.location() + ": an empty transcript";
        utterance.id = words[0];
        utterance.location = line.location();
        unique_ids.add(utterance.id, line.location());
        utterance.speaker = words[0].substr(0, words[0].find('-'));
        utterance.path = path.parent_path() / (words[0] + ".flac");
        utterance.words.assign(words.begin() + 1, words.end());
        corpus.utterances.push_back(std::move(utterance));
      });
  }
  require_utterances(corpus, folder / split, faults, "no lines of .trans.txt files");
  return corpus;
}

Tensor read_mfc(const fs::path& path, int64_t dims) {
  const Bytes bytes = read_bytes(path, int64_t{1} << 30);
  if (bytes.empty()) throw DataError(path.string() + ": is empty");
  const auto word = [&](size_t at) {
    return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 |
           bytes[at + 3];
  };
  const int64_t count = bytes.size() < 4 ? int64_t{-1} : int64_t{word(0)};
  const auto found = static_cast<int64_t>(bytes.size()) - 4;
  if (count <= 0 || count * 4 != found || count % dims != 0)
    throw DataError(concat_text(path.string(), ": expected a number of values, which is a multiple of ", dims,
                                ", followed by as many big-endian floats, found the number ", count, " and ",
                                std::max<int64_t>(found, 0), " further bytes"));
  const Tensor features = Tensor::empty({count / dims, dims});
  for (int64_t i = 0; i < count; ++i)
    features.data<float>()[i] = std::bit_cast<float>(word(4 + 4 * static_cast<size_t>(i)));
  return features;
}

}  // namespace tapeformer
