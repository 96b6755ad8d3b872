#include "data/files/text_lines.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "core/base/errors.h"
#include "core/system/utf8.h"
#include "data/files/file.h"
#include "data/files/text_encoding.h"

namespace tapeformer {

std::string TextLine::location() const {
  return concat_text(path.string(), ":", number);
}

void TextLine::fail(const std::string& message) const {
  throw DataError(location() + ": " + message);
}

std::vector<TextLine> read_lines(const std::filesystem::path& path) {
  const Bytes bytes = read_bytes(path, int64_t{1} << 31);
  std::string converted;
  std::string_view text = view_as_text(bytes, bytes.size());
  const TextEncoding encoding = detect_text_encoding(text);
  if (encoding.is_utf8())
    text.remove_prefix(encoding.mark_bytes);
  else
    text = converted = convert_to_utf8(text, encoding, path.string());
  std::vector<TextLine> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back({path, static_cast<int64_t>(lines.size()) + 1, std::move(line)});
    if (find_invalid_utf8(lines.back().text) != std::string::npos)
      require_utf8(lines.back().text, lines.back().location());
    if (lines.back().text.find('\0') != std::string::npos)
      lines.back().fail("contains a NUL byte, so the file is not a text");
    begin = end + 1;
  }
  return lines;
}

size_t find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = decode_first_utf8_character(text.substr(at)).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::string_view::npos;
}

void require_utf8(std::string_view text, const std::string& location) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return;
  std::ostringstream byte;
  byte << "0x" << std::hex << std::uppercase << std::setw(2) << std::setfill('0')
       << static_cast<int>(static_cast<unsigned char>(text[at]));
  throw DataError(concat_text(location, ": is not UTF-8: byte ", at + 1, " of the text is ", byte.str(),
                              "; convert it to UTF-8, if it is Latin-1 with iconv -f LATIN1 -t UTF-8"));
}

Words split_words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string join_words(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string to_ascii_lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string to_lower_case_utf8(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
  if (ascii || find_invalid_utf8(text) != std::string::npos) return to_ascii_lower_case(text);
  // The locale is never freed, because other threads can use it until the process ends.
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!locale) return to_ascii_lower_case(text);
  std::string lower;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Character character = decode_first_utf8_character(rest);
    append_utf8_character(
        static_cast<char32_t>(towlower_l(static_cast<wint_t>(character.code_point), locale)), lower);
    rest.remove_prefix(character.bytes);
  }
  return lower;
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
