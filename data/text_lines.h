// Text files line by line, for tables of words; every fault is named with its file and line. No state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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

// All lines, of at most 2 GiB in all. Ends of lines may be those of Windows. Throws DataError.
std::vector<TextLine> read_lines(const std::filesystem::path& path);

// The parts between spaces and tabs.
std::vector<std::string> split_words(const std::string& text);
// The words with a space between them.
std::string join_words(const std::vector<std::string>& words);

// ASCII letters in lower case.
std::string lower_case(std::string text);

// The whole text as a number. Throws DataError through the line when it is none.
double parse_number(const std::string& text, const TextLine& line);

}  // namespace tapeformer
