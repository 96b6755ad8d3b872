#include "data/audio/sound_bytes.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxHeaderBytes = size_t{16} << 20;  // of a pipe, which are kept in memory

// Returns a copy of the descriptor. The copy shares the position in the pipe.
int duplicate(int descriptor, const std::string& name) {
  const int copy = dup(descriptor);
  if (copy < 0) throw DataError(name + ": cannot be read: " + std::strerror(errno));
  return copy;
}

}  // namespace

SoundBytes::SoundBytes(File file) : file_(std::move(file)), size_(static_cast<int64_t>(file_.size())) {}

SoundBytes::SoundBytes(int descriptor, std::string name)
    : file_(duplicate(descriptor, name), name), size_(kPipeSize) {
  struct stat status {};
  is_pipe_ =
      fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || lseek(descriptor, 0, SEEK_CUR) != 0;
  keeps_bytes_ = is_pipe_;
  if (!is_pipe_) size_ = static_cast<int64_t>(status.st_size);
}

size_t SoundBytes::read_system(uint8_t* data, size_t size, size_t offset) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got =
        is_pipe_ ? read(file_.descriptor(), data + done, size - done)
                 : pread(file_.descriptor(), data + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) has_failed_ = true;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  if (is_pipe_) {
    next_ += done;
    has_ended_ = done < size;
  }
  return done;
}

size_t SoundBytes::read_at(void* data, size_t size, size_t offset) {
  auto* const bytes = static_cast<uint8_t*>(data);
  const size_t got = is_pipe_ ? read_pipe(bytes, size, offset) : read_system(bytes, size, offset);
  for (const Replacement& replacement : replacements_) {
    const size_t first = std::max(offset, replacement.offset);
    const size_t end = std::min(offset + got, replacement.offset + replacement.bytes.size());
    if (first < end)
      std::copy_n(replacement.bytes.begin() + static_cast<int64_t>(first - replacement.offset), end - first,
                  bytes + (first - offset));
  }
  return got;
}

size_t SoundBytes::read_pipe(uint8_t* data, size_t size, size_t offset) {
  const size_t end = offset + size;
  if (keeps_bytes_ && end > header_.size() && end <= kMaxHeaderBytes) {
    header_.resize(end);
    const size_t first = next_;  // all bytes before `first` are in header_
    read_system(header_.data() + first, end - first, first);
    header_.resize(next_);
  }
  size_t got = 0;
  if (offset < header_.size()) {
    got = std::min(size, header_.size() - offset);
    std::copy_n(header_.begin() + static_cast<int64_t>(offset), got, data);
  }
  if (!keeps_bytes_ && offset + got == next_) got += read_system(data + got, size - got, next_);
  return got;
}

}  // namespace tapeformer
