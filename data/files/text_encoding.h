// Recognition and conversion of texts in UTF-16 and UTF-32, which spreadsheets and other Windows programs
// write. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tapeformer {

struct TextEncoding {
  size_t unit_bytes = 1;       // 1: UTF-8 or an unknown encoding; 2: UTF-16; 4: UTF-32
  bool is_big_endian = false;  // byte order of UTF-16 and UTF-32
  size_t mark_bytes = 0;       // size of the byte order mark at the start of the text

  bool is_utf8() const { return unit_bytes == 1; }
  // Returns the name of the encoding for iconv, such as "UTF-16".
  std::string name() const;
};

// Returns the encoding of the byte order mark that the text begins with, or UTF-8 if it has none.
TextEncoding detect_text_encoding(std::string_view start);

// Returns a text in UTF-16 or UTF-32 as UTF-8, without the byte order mark. Throws DataError with `location`
// if the text is invalid.
std::string convert_to_utf8(std::string_view text, const TextEncoding& encoding, const std::string& location);

// Returns a text of the form "is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8".
std::string describe_encoding_problem(const TextEncoding& encoding);

}  // namespace tapeformer
