// Readers of parallel text: files of sentences and of their translations, one sentence a line. All classes
// are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/text_source.h"

namespace tapeformer {

// The lines of the files that a path selects (list_text_files()), in the order of the files. The files are
// UTF-8, plain or compressed (data/files/gzip.h). Lines end with LF or CR LF. The last line of a file may
// lack its end. Byte order marks are removed.
class SentenceFile {
 public:
  // Throws DataError if a file is missing, damaged or not UTF-8, with the file and the line, and if all files
  // are empty.
  explicit SentenceFile(const std::string& path);

  int64_t size() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // Returns a line without its end. The view is valid as long as the object.
  std::string_view line(int64_t i) const;
  // Returns the file and the number of a line, as "FILE:LINE". Lines are counted from 1.
  std::string location(int64_t i) const;
  // Returns the path and the number of lines of each file.
  const std::vector<std::pair<std::string, int64_t>>& files() const { return files_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  TextSource text_;
  std::vector<int64_t> starts_;  // offset of each line, and the size of the text
  std::vector<std::pair<std::string, int64_t>> files_;
};

// Returns whether a line in UTF-8 has only white space of Unicode. Such a line is no sentence.
bool is_blank(std::string_view line);

// The paths of parallel text, as in SentenceFile.
struct SentencePairPaths {
  std::string source, target;
  // Files with the place of each line, such as "Gen 41:1". If it is not empty, consecutive lines whose places
  // have the same text before the colon are joined to one sentence, with spaces.
  std::string places = {};

  bool is_complete() const { return !source.empty() && !target.empty(); }
};

class SentencePairs {
 public:
  // Throws the errors of SentenceFile. Throws DataError if the files have different numbers of lines.
  explicit SentencePairs(const SentencePairPaths& paths);

  int64_t size() const { return static_cast<int64_t>(first_lines_.size()) - 1; }
  std::string source(int64_t i) const { return join_lines(source_, i); }
  std::string target(int64_t i) const { return join_lines(target_, i); }
  // Return the file and the number of the first line of a sentence.
  std::string source_location(int64_t i) const { return source_.location(first_line(i)); }
  std::string target_location(int64_t i) const { return target_.location(first_line(i)); }

 private:
  int64_t first_line(int64_t i) const { return first_lines_[static_cast<size_t>(i)]; }
  std::string join_lines(const SentenceFile& file, int64_t i) const;

  SentenceFile source_, target_;
  std::vector<int64_t> first_lines_;  // of each sentence, and the number of lines
};

}  // namespace tapeformer
