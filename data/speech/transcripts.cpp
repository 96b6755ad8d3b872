#include "data/speech/transcripts.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 12> kRecordingColumns = {"path", "file",      "filename", "file_name",
                                                           "wav",  "audio",     "clip",     "wav_filename",
                                                           "id",   "utterance", "name",     "recording"};
constexpr std::array<const char*, 7> kTextColumns = {
    "text", "sentence", "transcript", "transcription", "normalized_text", "words", "label"};
constexpr std::array<const char*, 4> kSpeakerColumns = {"speaker", "speaker_id", "client_id", "spk"};

// A row of a table. A quoted field can contain line breaks, so a row can have several lines.
struct Row {
  Words fields = {""};
  size_t line_count = 1;
};

// Returns the row that begins at lines[first]. A quoted field may contain separators and line breaks, and ""
// in it stands for a quote. Returns std::nullopt if a quote is not closed.
//
// In a .csv file, whose separator is a comma, a quote at the start of a field always begins a quoted field.
// In other tables it can also be a part of the text, so the function returns std::nullopt unless the quotes
// enclose a whole field without separators. Quotes around line breaks must always enclose a whole field.
// Otherwise, an unclosed quote would join its row with rows up to the next quote.
std::optional<Row> split_quoted_row(const std::vector<TextLine>& lines, size_t first, char separator) {
  const bool is_csv = separator == ',';
  Row row;
  bool quoted = false, closed = false;  // closed: the field has ended with a quote
  while (true) {
    const std::string& text = lines[first + row.line_count - 1].text;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        row.fields.back() += text[++i];
      } else if (c == '"' && (quoted || (row.fields.back().empty() && !closed))) {
        closed = quoted;
        quoted = !quoted;
      } else if (c == separator && !quoted) {
        row.fields.emplace_back();
        closed = false;
      } else {
        const bool extends_field = closed && c != ' ' && (!is_csv || row.line_count > 1);
        if (extends_field || (c == separator && !is_csv)) return std::nullopt;
        row.fields.back() += c;
      }
    }
    if (!quoted) return row;
    if (first + row.line_count == lines.size()) return std::nullopt;
    row.fields.back() += ' ';  // for the line break
    ++row.line_count;
  }
}

Row split_row(const std::vector<TextLine>& lines, size_t first, char separator) {
  if (auto row = split_quoted_row(lines, first, separator)) return *std::move(row);
  if (separator == ',') lines[first].fail("a quote is not closed");
  Row row;
  for (const char c : lines[first].text)
    if (c == separator)
      row.fields.emplace_back();
    else
      row.fields.back() += c;
  return row;
}

// Returns the separator of the columns, or 0 if the file is not a table.
char find_separator(const fs::path& path, const std::string& first_line) {
  const std::string extension = to_ascii_lower_case(path.extension().string());
  const bool bars = first_line.find('|') != std::string::npos;
  if (extension == ".tsv" || first_line.find('\t') != std::string::npos) return '\t';
  // metadata.csv of LJSpeech has bars as separators, and commas in its texts.
  if (extension == ".csv") return bars && first_line.find('|') < first_line.find(',') ? '|' : ',';
  return bars ? '|' : '\0';
}

template <size_t N>
std::optional<size_t> named_column(const Words& header, const std::array<const char*, N>& names) {
  for (const char* name : names)
    for (size_t i = 0; i < header.size(); ++i)
      if (to_ascii_lower_case(header[i]) == name) return i;
  return std::nullopt;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 4 && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns the index of the column that the user chose by a number from 1 or by a name in the header. Returns
// std::nullopt if `wanted` is empty. Throws DataError if there is no such column.
std::optional<size_t> chosen_column(const Words& header, const std::string& wanted, const TextLine& line) {
  if (wanted.empty()) return std::nullopt;
  if (is_number(wanted) && std::stoul(wanted) >= 1 && std::stoul(wanted) <= header.size())
    return std::stoul(wanted) - 1;
  for (size_t i = 0; i < header.size(); ++i)
    if (header[i] == wanted) return i;
  line.fail("there is no column \"" + wanted + "\"; the columns are: " + abbreviate_list(header));
}

struct Columns {
  size_t recording = 0, text = 1;
  std::optional<size_t> speaker;
  bool header = false;
};

Columns find_columns(const TextLine& line, const Words& first, const TranscriptColumns& wanted) {
  const auto recording = named_column(first, kRecordingColumns), text = named_column(first, kTextColumns);
  Columns columns;
  columns.speaker = chosen_column(first, wanted.speaker, line);
  const auto chosen_recording = chosen_column(first, wanted.recording, line),
             chosen_text = chosen_column(first, wanted.text, line);
  const auto names_header = [&](const std::string& name) {
    return !is_number(name) && std::find(first.begin(), first.end(), name) != first.end();
  };
  columns.header = (recording && text) || names_header(wanted.recording) || names_header(wanted.text);
  if (columns.header && !columns.speaker) columns.speaker = named_column(first, kSpeakerColumns);
  if ((columns.header && recording && text) || (chosen_recording && chosen_text)) {
    columns.recording = chosen_recording.value_or(recording.value_or(0));
    columns.text = chosen_text.value_or(text.value_or(1));
    return columns;
  }
  if (first.size() != 2 && first.size() != 3)
    line.fail(
        concat_text("expected a header with a column for the recording (path, file, id …) and one for the "
                    "text (text, sentence …), or 2 columns, found ",
                    first.size(), ": ", abbreviate_list(first)));
  columns.recording = chosen_recording.value_or(0);
  columns.text = chosen_text.value_or(first.size() - 1);
  return columns;
}

std::string trimmed(const std::string& text) {
  return join_words(split_words(text));
}

std::vector<Transcript> read_table(const std::vector<TextLine>& lines, char separator,
                                   const TranscriptColumns& wanted, Faults* faults) {
  std::vector<Transcript> transcripts;
  std::optional<Columns> columns;
  size_t line_count = 1;
  for (size_t i = 0; i < lines.size(); i += line_count) {
    const TextLine& line = lines[i];
    line_count = 1;
    if (trimmed(line.text).empty()) continue;
    if (!columns) {
      const Row row = split_row(lines, i, separator);
      columns = find_columns(line, row.fields, wanted);
      if (columns->header) {
        line_count = row.line_count;
        continue;
      }
    }
    run_and_collect_fault(faults, [&] {
      const Row row = split_row(lines, i, separator);
      line_count = row.line_count;
      const Words& fields = row.fields;
      const size_t needed = std::max({columns->recording, columns->text, columns->speaker.value_or(0)}) + 1;
      if (fields.size() < needed)
        line.fail(concat_text("expected at least ", needed, " columns, found ", fields.size()));
      const std::string name = trimmed(fields[columns->recording]);
      if (name.empty()) line.fail("the recording column is empty");
      transcripts.push_back({name, trimmed(fields[columns->text]),
                             columns->speaker ? trimmed(fields[*columns->speaker]) : "", line.location()});
    });
  }
  return transcripts;
}

std::vector<Transcript> read_list(const std::vector<TextLine>& lines) {
  std::vector<Transcript> transcripts;
  for (const TextLine& line : lines) {
    Words words = split_words(line.text);
    if (words.empty()) continue;
    const std::string id = words.front();
    words.erase(words.begin());
    transcripts.push_back({id, join_words(words), "", line.location()});
  }
  return transcripts;
}

std::vector<Transcript> read_folder(const fs::path& folder, Faults* faults) {
  std::vector<fs::path> lists, single;
  std::error_code ignored;
  for (const auto& entry : list_folder_tree(folder)) {
    const std::string name = to_ascii_lower_case(entry.path().filename().string());
    if (!entry.is_regular_file(ignored)) continue;
    if (name.ends_with(".trans.txt"))
      lists.push_back(entry.path());
    else if (name.ends_with(".txt") || name.ends_with(".lab"))
      single.push_back(entry.path());
  }
  std::vector<Transcript> transcripts;
  for (const fs::path& path : lists)
    run_and_collect_fault(faults, [&] {
      for (Transcript& transcript : read_list(read_lines(path))) transcripts.push_back(std::move(transcript));
    });
  if (!lists.empty()) single.clear();
  for (const fs::path& path : single)
    run_and_collect_fault(faults, [&] {
      std::string text;
      for (const TextLine& line : read_lines(path)) text += line.text + " ";
      fs::path name = path.lexically_relative(folder);
      transcripts.push_back({name.replace_extension().string(), trimmed(text), "", path.string() + ":1"});
    });
  return transcripts;
}

// Replaces typographic marks by ASCII characters.
std::string with_ascii_marks(std::string text) {
  struct Mark {
    const char *mark, *plain;
  };
  constexpr std::array<Mark, 30> kMarks = {
      {{"‘", "'"},      {"’", "'"},     {"ʼ", "'"},     {"′", "'"},      {"“", " "},      {"”", " "},
       {"„", " "},      {"«", " "},     {"»", " "},     {"‹", " "},      {"›", " "},      {"‐", "-"},
       {"‑", "-"},      {"–", " "},     {"—", " "},     {"―", " "},      {"…", " "},      {"·", " "},
       {"•", " "},      {"¿", " "},     {"¡", " "},     {"\u00A0", " "}, {"\u2009", " "}, {"\u202F", " "},
       {"\u3000", " "}, {"\u200B", ""}, {"\u200C", ""}, {"\u200D", ""},  {"\u00AD", ""},  {"\uFEFF", ""}}};
  for (const auto& [mark, plain] : kMarks)
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at))
      text.replace(at, std::string_view(mark).size(), plain);
  return text;
}

std::string without_edges(const std::string& word, std::string_view edges) {
  const size_t first = word.find_first_not_of(edges);
  return first == std::string::npos ? "" : word.substr(first, word.find_last_not_of(edges) + 1 - first);
}

// Removes punctuation at both ends of a word. Keeps dashes, dots and apostrophes at the ends if the lexicon
// contains the word including these characters.
std::string bare_word(const std::string& word, const Lexicon& lexicon) {
  std::string bare;
  for (const std::string_view edges : {"\"()[]{}<>,;:!?*_~`^|\\/", "\"()[]{}<>,;:!?*_~`^|\\/-",
                                       "\"()[]{}<>,;:!?*_~`^|\\/-.", "\"()[]{}<>,;:!?*_~`^|\\/-.'"}) {
    bare = without_edges(word, edges);
    if (bare.empty() || lexicon.find(bare)) break;
  }
  return bare;
}

void add_word(const std::string& word, const Lexicon& lexicon, NormalizedText& result) {
  if (word.empty()) return;
  result.words.push_back(to_lower_case_utf8(word));
  if (!lexicon.find(word)) result.unknown.push_back(result.words.back());
}

}  // namespace

std::vector<Transcript> read_transcripts(const fs::path& path, const TranscriptColumns& columns,
                                         Faults* faults) {
  const bool in_folder = is_folder(path);
  std::vector<Transcript> transcripts;
  if (in_folder) {
    transcripts = read_folder(path, faults);
  } else {
    const auto lines = read_lines(path);
    const char separator = find_separator(path, lines.empty() ? "" : lines.front().text);
    transcripts = separator ? read_table(lines, separator, columns, faults) : read_list(lines);
  }
  if (transcripts.empty())
    throw_with_faults(
        path.string() + ": contains no transcripts" + (in_folder ? " (.trans.txt, .txt or .lab files)" : ""),
        faults ? *faults : Faults());
  return transcripts;
}

NormalizedText normalize_transcript(const std::string& text, const Lexicon& lexicon) {
  NormalizedText result;
  for (const std::string& word : split_words(with_ascii_marks(text))) {
    const std::string bare = bare_word(word, lexicon);
    const bool digits = bare.find_first_of("0123456789") != std::string::npos;
    const size_t compound = bare.find_first_of("-/.,_;:!?");
    if (lexicon.find(bare) || digits || compound == std::string::npos) {
      add_word(bare, lexicon, result);
      continue;
    }
    std::string parts = bare;
    for (char& c : parts)
      if (std::string_view("-/.,_;:!?").find(c) != std::string_view::npos) c = ' ';
    for (const std::string& part : split_words(parts)) add_word(bare_word(part, lexicon), lexicon, result);
  }
  return result;
}

}  // namespace tapeformer
