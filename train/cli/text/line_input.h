// The lines of files, pipes and standard input.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/translation/sentence_pairs.h"
#include "train/cli/text/input_stream.h"

namespace tapeformer {

// Number of lines that are translated or scored before the results are printed. Lines of similar lengths are
// decoded together.
inline constexpr size_t kBlockLines = 1000;

// The lines of a file (SentenceFile) or of a stream, without line ends.
class LineInput {
 public:
  // Throws the errors of SentenceFile and InputStream.
  explicit LineInput(const std::string& path);
  const std::string& name() const { return stream_ ? stream_->name() : file_->path(); }
  // Returns the number of lines of a file, or std::nullopt for a stream.
  std::optional<int64_t> size() const;
  // Returns the next lines: at most `count`, and of a stream only those that have arrived, but at least one.
  // The result is empty at the end. Throws DataError if there is no text, and for a line that is not UTF-8 or
  // has more than 1 MiB, after the lines before it were returned.
  std::vector<std::string> read(size_t count);

 private:
  bool read_line(std::string& line);

  std::unique_ptr<SentenceFile> file_;
  std::unique_ptr<InputStream> stream_;  // if there is no file
  int64_t number_ = 0;                   // lines of the file that were read
  std::exception_ptr problem_ = {};      // of the line after the lines that were returned
};

}  // namespace tapeformer
