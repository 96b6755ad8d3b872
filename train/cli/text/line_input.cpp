#include "train/cli/text/line_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "core/base/errors.h"
#include "data/files/text_encoding.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxInputLineBytes = size_t{1} << 20;

}  // namespace

LineInput::LineInput(const std::string& path)
    : name_(path == kStandardInputName ? "standard input" : path),
      file_(path == kStandardInputName ? nullptr : std::make_unique<SentenceFile>(path)) {}

std::vector<std::string> LineInput::read(size_t count) {
  if (!file_ && isatty(STDIN_FILENO) != 0) count = 1;
  std::vector<std::string> lines;
  for (std::string line; lines.size() < count && read_line(line);) lines.push_back(std::move(line));
  return lines;
}

bool LineInput::read_line(std::string& line) {
  if (file_) {
    if (number_ >= file_->size()) return false;
    line = file_->line(number_++);
    return true;
  }
  line.clear();
  std::streambuf& input = *std::cin.rdbuf();
  int c = input.sbumpc();
  for (; c != EOF && c != '\n' && line.size() <= kMaxInputLineBytes; c = input.sbumpc())
    line += static_cast<char>(c);
  if (c == EOF && line.empty()) return false;
  const std::string location = concat_text(name_, ":", ++number_);
  if (line.size() > kMaxInputLineBytes)
    throw DataError(concat_text(location, ": the line has more than ", kMaxInputLineBytes, " bytes"));
  if (number_ == 1 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF")))
    throw DataError(name_ + ": " + describe_encoding_problem(detect_text_encoding(line), "FILE"));
  if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (line.ends_with('\r')) line.pop_back();
  require_utf8(line, location);
  return true;
}

}  // namespace tapeformer
