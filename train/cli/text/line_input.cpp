#include "train/cli/text/line_input.h"

#include <filesystem>
#include <utility>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"

namespace tapeformer {

LineInput::LineInput(const std::string& path) {
  if (InputStream::is_named_by(path)) {
    stream_ = std::make_unique<InputStream>(path);
    return;
  }
  // A SentenceFile can also be a folder or a pattern.
  if (is_folder(path)) throw DataError(path + ": is a folder, expected a file");
  if (!path_exists(path)) throw DataError(path + ": no such file");
  file_ = std::make_unique<SentenceFile>(path);
}

std::optional<int64_t> LineInput::size() const {
  return file_ ? std::optional(file_->size()) : std::nullopt;
}

std::vector<std::string> LineInput::read(size_t count) {
  if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
  std::vector<std::string> lines;
  try {
    for (std::string line; lines.size() < count && (lines.empty() || !stream_ || stream_->has_line());) {
      if (!read_line(line)) break;
      lines.push_back(std::move(line));
    }
  } catch (const DataError&) {
    if (lines.empty()) throw;
    problem_ = std::current_exception();
  }
  return lines;
}

bool LineInput::read_line(std::string& line) {
  if (file_) {
    if (number_ >= file_->size()) return false;
    line = file_->line(number_++);
    return true;
  }
  auto next = stream_->read_line();
  if (const TextEncoding& encoding = stream_->encoding(); !encoding.is_utf8())
    throw DataError(stream_->name() + ": " + describe_encoding_problem(encoding));
  if (!next) return false;
  line = *std::move(next);
  if (line.ends_with('\r')) line.pop_back();
  require_utf8(line, stream_->location());
  return true;
}

}  // namespace tapeformer
