// The bytes of a recording, in a file or from a pipe. Internal to data/audio.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/system/files.h"
#include "data/files/file.h"

namespace tapeformer {

// A reader of the bytes at any offset of a file, or of a pipe. A pipe can be read at any offset until
// end_header() is called, and then only forwards. Not thread-safe.
class SoundBytes {
 public:
  // `file` is a regular file.
  explicit SoundBytes(File file);
  // Reads the descriptor, which may be a pipe. Does not close it.
  SoundBytes(int descriptor, std::string name);

  const std::string& name() const { return file_.path(); }
  bool is_pipe() const { return is_pipe_; }
  // Returns the size of the file, or kPipeSize.
  int64_t size() const { return size_; }
  // Reads up to `size` bytes. Waits for them if the source is a pipe. Returns the number of read bytes, which
  // is less than `size` only at the end or after a system error.
  size_t read_at(void* data, size_t size, size_t offset);
  // Makes read_at() return `bytes` at `offset`, instead of the bytes of the file or pipe.
  void replace(size_t offset, Bytes bytes) { replacements_.push_back({offset, std::move(bytes)}); }
  // Stops the storage of bytes of a pipe. Call this function after the header has been read.
  void end_header() { keeps_bytes_ = false; }
  // Returns whether a system call has failed.
  bool has_failed() const { return has_failed_; }
  // Returns whether read_at() has found that the pipe ends before `offset`.
  bool ends_before(int64_t offset) const { return has_ended_ && static_cast<int64_t>(next_) < offset; }

  static constexpr int64_t kPipeSize = int64_t{1} << 48;  // more than a program writes to a pipe

 private:
  struct Replacement {
    size_t offset;
    Bytes bytes;
  };
  size_t read_system(uint8_t* data, size_t size, size_t offset);
  size_t read_pipe(uint8_t* data, size_t size, size_t offset);

  File file_;
  bool is_pipe_ = false, keeps_bytes_ = false, has_ended_ = false, has_failed_ = false;
  int64_t size_ = 0;
  Bytes header_;     // first bytes of the pipe
  size_t next_ = 0;  // offset of the next byte that the pipe provides
  std::vector<Replacement> replacements_;
};

}  // namespace tapeformer
