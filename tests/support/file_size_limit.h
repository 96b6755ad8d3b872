// A class that limits the size of the files that this process writes, during the lifetime of its object.
// Writes beyond the limit fail, so tests can simulate a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace tapeformer::test {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : previous_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &previous_limit_);
    const rlimit limit{bytes, previous_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_limit_);
    std::signal(SIGXFSZ, previous_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit previous_limit_{};
  void (*previous_handler_)(int);
};

}  // namespace tapeformer::test
