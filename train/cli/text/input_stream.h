// Standard input and pipes, which are read line by line as their lines arrive.
#pragma once

#include <optional>
#include <string>

#include "data/files/file.h"
#include "data/files/text_encoding.h"

namespace tapeformer {

inline constexpr char kStandardInputName[] = "-";

// Standard input, if the path is "-", or a pipe, such as /dev/stdin and <(zcat FILE) of a shell. While the
// object waits for bytes, it calls throw_if_interrupted() (core/base/interruption.h).
class InputStream {
 public:
  static constexpr size_t kDefaultMaxLineBytes = size_t{1} << 20;

  // Returns whether the path names a stream and not a file.
  static bool is_named_by(const std::string& path);

  // Throws DataError if the stream cannot be opened.
  explicit InputStream(const std::string& path, size_t max_line_bytes = kDefaultMaxLineBytes);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  const std::string& name() const { return name_; }
  // Returns the next line without its LF, or std::nullopt at the end. Waits for the whole line. Removes a
  // byte order mark of UTF-8 at the start. Throws DataError if there is no text, if the stream is compressed
  // or cannot be read, and if the line has more than max_line_bytes bytes.
  std::optional<std::string> read_line();
  // Returns whether read_line() would not wait.
  bool has_line();
  // Returns the stream and the number of the line that was read last, as "NAME:LINE".
  std::string location() const;
  // Returns the encoding of the bytes that have arrived; see detect_text_encoding().
  const TextEncoding& encoding() const { return encoding_; }
  // Returns the rest of the stream. Throws DataError if the stream is compressed or cannot be read, and if
  // the rest has more than `max_bytes` bytes or a line of more than max_line_bytes bytes.
  std::string read_all(int64_t max_bytes);

 private:
  bool fill(bool wait);
  void check_start();
  bool find_line_end();

  std::string name_;
  int descriptor_ = 0;  // standard input stays open
  size_t max_line_bytes_;
  std::string buffer_ = {};               // bytes that have arrived
  size_t line_begin_ = 0, line_end_ = 0;  // the next line in the buffer, as far as it was searched for a LF
  std::string start_ = {};                // the first bytes of the stream
  TextEncoding encoding_ = {};
  int64_t line_count_ = 0;  // lines that were read
  bool is_at_end_ = false;
};

}  // namespace tapeformer
