// Lines of a file or of standard input.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/translation/sentence_pairs.h"

namespace tapeformer {

inline constexpr char kStandardInputName[] = "-";

// The lines of a file (SentenceFile) or of standard input, without line ends.
class LineInput {
 public:
  // `path` is "-" for standard input. Throws the errors of SentenceFile.
  explicit LineInput(const std::string& path);
  // Returns at most `count` next lines, or one line of a terminal. The result is empty at the end. Throws
  // DataError for a line that is not UTF-8 or has more than 1 MiB.
  std::vector<std::string> read(size_t count);

 private:
  bool read_line(std::string& line);

  std::string name_;
  std::unique_ptr<SentenceFile> file_;  // null for standard input
  int64_t number_ = 0;                  // of lines read
};

}  // namespace tapeformer
