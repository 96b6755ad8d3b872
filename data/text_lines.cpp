#include "data/text_lines.h"

#include <cmath>
#include <sstream>

#include "core/errors.h"
#include "data/file.h"

namespace tapeformer {

std::string TextLine::place() const {
  return concat_text(path.string(), ":", number);
}

void TextLine::fail(const std::string& message) const {
  throw DataError(place() + ": " + message);
}

std::vector<TextLine> read_lines(const std::filesystem::path& path) {
  const Bytes bytes = read_bytes(path, int64_t{1} << 31);
  const std::string_view text = as_text(bytes, bytes.size());
  std::vector<TextLine> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back({path, static_cast<int64_t>(lines.size()) + 1, std::move(line)});
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string join_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

double parse_number(const std::string& text, const TextLine& line) {
  size_t used = 0;
  double value = NAN;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !std::isfinite(value))
    line.fail("expected a number, found \"" + text + "\"");
  return value;
}

}  // namespace tapeformer
