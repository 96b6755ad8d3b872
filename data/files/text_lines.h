// Readers of text files and functions for UTF-8 text. Error messages contain the file and line. All functions
// are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

using Words = std::vector<std::string>;

struct TextLine {
  std::filesystem::path path;
  int64_t number = 0;  // number of the line, from 1
  std::string text;    // text of the line without the line end

  std::string location() const;  // returns "path:number"
  // Throws DataError with a text of the form "path:number: message".
  [[noreturn]] void fail(const std::string& message) const;
};

// Returns all lines of a file of at most 2 GiB, as UTF-8. The file can also be UTF-16 or UTF-32; see
// detect_text_encoding(). Removes a byte order mark and carriage returns at line ends. Throws DataError if
// the file cannot be read, has another encoding or contains NUL bytes.
std::vector<TextLine> read_lines(const std::filesystem::path& path);

// Returns the offset of the first byte that is not valid UTF-8 (RFC 3629), or npos.
size_t find_invalid_utf8(std::string_view text);

// Throws DataError with `location` if the text is not valid UTF-8. Names of files and labels must be UTF-8,
// because checkpoints and reports contain them.
void require_utf8(std::string_view text, const std::string& location);

// Returns the words of a text, split at white space.
Words split_words(const std::string& text);
std::string join_words(const Words& words);

// Converts ASCII letters to lower case.
std::string to_ascii_lower_case(std::string text);

// Converts a UTF-8 text to lower case, according to the C library's Unicode tables. If the text is not valid
// UTF-8, converts only ASCII letters.
std::string to_lower_case_utf8(const std::string& text);

// Converts the whole text to a number. Throws DataError with the location of the line if the text is not a
// finite number.
double parse_number(const std::string& text, const TextLine& line);

}  // namespace tapeformer
