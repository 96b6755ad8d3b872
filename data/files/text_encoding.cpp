#include "data/files/text_encoding.h"

#include <cstdint>
#include <optional>

#include "core/base/errors.h"
#include "core/system/utf8.h"

namespace tapeformer {
namespace {

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

}  // namespace

std::string TextEncoding::name() const {
  return is_utf8() ? "UTF-8" : unit_bytes == 2 ? "UTF-16" : "UTF-32";
}

TextEncoding detect_text_encoding(std::string_view start) {
  for (const auto& [mark, encoding] : kMarks)
    if (start.starts_with(mark)) return encoding;
  return {};
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
