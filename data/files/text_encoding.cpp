#include "data/files/text_encoding.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/base/errors.h"
#include "core/system/utf8.h"

namespace tapeformer {
namespace {

constexpr size_t kDetectionBytes = size_t{1} << 16;
// A text without a byte order mark is UTF-16 or UTF-32 only if at least one of this number of its characters
// is ASCII. Spaces and line ends are ASCII in the texts of every script.
constexpr size_t kMaxCharactersPerAscii = 256;

struct Mark {
  std::string_view bytes;
  TextEncoding encoding;
};

// The mark of UTF-32LE begins with the mark of UTF-16LE.
constexpr Mark kMarks[] = {{{"\xFF\xFE\0\0", 4}, {4, false, 4}},
                           {{"\0\0\xFE\xFF", 4}, {4, true, 4}},
                           {{"\xFF\xFE", 2}, {2, false, 2}},
                           {{"\xFE\xFF", 2}, {2, true, 2}},
                           {{"\xEF\xBB\xBF", 3}, {1, false, 3}}};

bool is_control(char32_t code) {
  return code < 0x20 && code != '\t' && code != '\n' && code != '\r' && code != '\f';
}

// Sequential reader of the characters of a text in UTF-16 or UTF-32.
class CharacterReader {
 public:
  CharacterReader(std::string_view text, const TextEncoding& encoding)
      : text_(text.substr(encoding.mark_bytes)), encoding_(encoding) {}

  bool is_at_end() const { return text_.empty(); }
  size_t bytes_left() const { return text_.size(); }
  // Returns the next character, or std::nullopt if it is invalid or incomplete.
  std::optional<char32_t> read() {
    const auto unit = read_unit();
    const bool surrogate = unit && *unit >= 0xD800 && *unit <= 0xDFFF;
    if (!unit || *unit > 0x10FFFF || (surrogate && encoding_.unit_bytes == 4)) return std::nullopt;
    if (!surrogate) return unit;
    const auto low = *unit < 0xDC00 ? read_unit() : std::nullopt;
    if (!low || *low < 0xDC00 || *low > 0xDFFF) return std::nullopt;
    return 0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00);
  }

 private:
  std::optional<char32_t> read_unit() {
    if (text_.size() < encoding_.unit_bytes) return std::nullopt;
    char32_t unit = 0;
    for (size_t i = 0; i < encoding_.unit_bytes; ++i) {
      const size_t at = encoding_.is_big_endian ? i : encoding_.unit_bytes - 1 - i;
      unit = unit << 8 | static_cast<uint8_t>(text_[at]);
    }
    text_.remove_prefix(encoding_.unit_bytes);
    return unit;
  }

  std::string_view text_;
  TextEncoding encoding_;
};

// Returns whether a text with NUL bytes is probably UTF-8 and damaged.
bool is_damaged_utf8(std::string_view text) {
  size_t nul_count = 0, at = 0;
  while (at < text.size()) {
    const Utf8Character character = decode_first_utf8_character(text.substr(at));
    if (character.bytes == 0) return text.size() - at < 4;  // the end of the text can divide a character
    if (character.code_point == 0)
      ++nul_count;
    else if (is_control(character.code_point))
      return false;
    at += character.bytes;
  }
  return 4 * nul_count < text.size();
}

// Returns the number of ASCII characters in the text. Returns 0 if the text is invalid in the encoding or
// contains control characters.
size_t count_ascii_characters(std::string_view text, const TextEncoding& encoding) {
  size_t ascii_count = 0, count = 0;
  for (CharacterReader reader(text, encoding); !reader.is_at_end(); ++count) {
    const bool is_last = reader.bytes_left() < 4;  // the end of the text can divide a character
    const auto character = reader.read();
    if (!character && is_last) break;
    if (!character || is_control(*character)) return 0;
    ascii_count += *character < 0x80;
  }
  return ascii_count * kMaxCharactersPerAscii < count ? 0 : ascii_count;
}

}  // namespace

std::string TextEncoding::name() const {
  if (is_utf8()) return "UTF-8";
  const std::string name = unit_bytes == 2 ? "UTF-16" : "UTF-32";
  return mark_bytes > 0 ? name : name + (is_big_endian ? "BE" : "LE");
}

TextEncoding detect_text_encoding(std::string_view start) {
  for (const auto& [mark, encoding] : kMarks)
    if (start.starts_with(mark)) return encoding;
  start = start.substr(0, kDetectionBytes);
  TextEncoding detected;
  if (start.find('\0') == std::string_view::npos || is_damaged_utf8(start)) return detected;
  size_t max_count = 0;
  for (const TextEncoding& encoding :
       {TextEncoding{4, false}, TextEncoding{4, true}, TextEncoding{2, false}, TextEncoding{2, true}})
    if (const size_t count = count_ascii_characters(start, encoding); count > max_count) {
      max_count = count;
      detected = encoding;
    }
  return detected;
}

std::string convert_to_utf8(std::string_view text, const TextEncoding& encoding,
                            const std::string& location) {
  std::string result;
  for (CharacterReader reader(text, encoding); !reader.is_at_end();) {
    const size_t offset = text.size() - reader.bytes_left();
    const auto character = reader.read();
    if (!character)
      throw DataError(concat_text(location, ": is ", encoding.name(), ", but the character at byte ",
                                  offset + 1, " is invalid or incomplete"));
    append_utf8_character(*character, result);
  }
  return result;
}

std::string describe_encoding_problem(const TextEncoding& encoding) {
  return "is " + encoding.name() + ", expected UTF-8; convert it with iconv -f " + encoding.name() +
         " -t UTF-8";
}

}  // namespace tapeformer
