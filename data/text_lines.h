// Text files line by line, for tables of words; every fault is named with its file and line. No state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

struct TextLine {
  std::filesystem::path path;
  int64_t number = 0;  // from 1
  std::string text;    // without the line end

  std::string place() const;  // "path:number"
  // Throws DataError("path:number: message").
  [[noreturn]] void fail(const std::string& message) const;
};

// Returns all lines, of at most 2 GiB in all, without a byte order mark. Ends of lines may be those of
// Windows. Throws DataError, with the line if the text is not UTF-8.
std::vector<TextLine> read_lines(const std::filesystem::path& path);

// Throws DataError("place: … is not UTF-8 …"): checkpoints and reports store names as UTF-8.
void require_utf8(std::string_view text, const std::string& place);

// The parts between spaces and tabs.
std::vector<std::string> split_words(const std::string& text);
// The words with a space between them.
std::string join_words(const std::vector<std::string>& words);

// ASCII letters in lower case.
std::string lower_case(std::string text);

// All letters of a UTF-8 text in lower case, by the C library's table of Unicode. The text may be invalid,
// whose ASCII letters are changed only.
std::string lower_case_utf8(const std::string& text);

// The whole text as a number. Throws DataError through the line when it is none.
double parse_number(const std::string& text, const TextLine& line);

}  // namespace tapeformer
