#include "train/cli/text/line_input.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "core/base/errors.h"
#include "data/files/gzip.h"
#include "data/files/text_encoding.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxInputLineBytes = size_t{1} << 20;

}  // namespace

bool InputStream::is_named_by(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return path == kStandardInputName || std::filesystem::is_fifo(status) ||
         std::filesystem::is_character_file(status);
}

InputStream::InputStream(const std::string& path) : name_(path) {
  if (path == kStandardInputName) {
    name_ = "standard input";
    struct stat status {};
    if (fstat(STDIN_FILENO, &status) != 0 || S_ISDIR(status.st_mode))
      throw DataError(name_ + ": is closed or a folder");
    return;
  }
  pipe_.open(path, std::ios::binary);
  if (!pipe_) throw DataError(path + ": cannot be opened");
}

void InputStream::check_start(std::string_view start) const {
  if (is_compressed(start))
    throw DataError(name_ + ": a stream cannot be compressed; unpack it, for example with zcat");
}

bool InputStream::is_terminal() const {
  return !pipe_.is_open() && isatty(STDIN_FILENO) != 0;
}

std::streambuf& InputStream::buffer() {
  return pipe_.is_open() ? *pipe_.rdbuf() : *std::cin.rdbuf();
}

Bytes InputStream::read_all() {
  Bytes bytes(std::istreambuf_iterator<char>(&buffer()), {});
  if (bytes.empty()) throw DataError(name_ + ": no text: the size is 0 bytes");
  check_start(view_as_text(bytes, bytes.size()));
  return bytes;
}

LineInput::LineInput(const std::string& path) {
  if (InputStream::is_named_by(path))
    stream_ = std::make_unique<InputStream>(path);
  else
    file_ = std::make_unique<SentenceFile>(path);
}

std::vector<std::string> LineInput::read(size_t count) {
  if (stream_ && stream_->is_terminal()) count = 1;
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
  std::streambuf& input = stream_->buffer();
  int c = input.sbumpc();
  for (; c != EOF && c != '\n' && line.size() <= kMaxInputLineBytes; c = input.sbumpc())
    line += static_cast<char>(c);
  if (c == EOF && line.empty() && number_ == 0)
    throw DataError(stream_->name() + ": no text: the size is 0 bytes");
  if (c == EOF && line.empty()) return false;
  const std::string location = concat_text(stream_->name(), ":", ++number_);
  if (line.size() > kMaxInputLineBytes)
    throw DataError(concat_text(location, ": the line has more than ", kMaxInputLineBytes, " bytes"));
  if (number_ == 1) stream_->check_start(line);
  if (number_ == 1 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF")))
    throw DataError(stream_->name() + ": " + describe_encoding_problem(detect_text_encoding(line), "FILE"));
  if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (line.ends_with('\r')) line.pop_back();
  require_utf8(line, location);
  return true;
}

}  // namespace tapeformer
