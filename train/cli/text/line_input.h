// Texts of files, pipes and standard input.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "data/translation/sentence_pairs.h"

namespace tapeformer {

inline constexpr char kStandardInputName[] = "-";

// Standard input, if the path is "-", or a pipe, such as /dev/stdin and <(zcat FILE) of a shell.
class InputStream {
 public:
  // Returns whether the path names a stream and not a file.
  static bool is_named_by(const std::string& path);

  // Throws DataError if the stream cannot be opened.
  explicit InputStream(const std::string& path);
  const std::string& name() const { return name_; }
  bool is_terminal() const;  // whether it is standard input and a terminal
  std::streambuf& buffer();
  // Throws DataError if the first bytes of the stream, `start`, are those of a compressed file.
  void check_start(std::string_view start) const;
  // Returns all bytes. Throws DataError if there are none, and the errors of check_start().
  Bytes read_all();

 private:
  std::string name_;
  std::ifstream pipe_;  // closed for standard input
};

// The lines of a file (SentenceFile) or of a stream, without line ends.
class LineInput {
 public:
  // Throws the errors of SentenceFile and InputStream.
  explicit LineInput(const std::string& path);
  // Returns at most `count` next lines, or one line of a terminal. The result is empty at the end. Throws
  // DataError if there is no text, and for a line that is not UTF-8 or has more than 1 MiB.
  std::vector<std::string> read(size_t count);

 private:
  bool read_line(std::string& line);

  std::unique_ptr<SentenceFile> file_;
  std::unique_ptr<InputStream> stream_;  // if there is no file
  int64_t number_ = 0;                   // of lines read
};

}  // namespace tapeformer
