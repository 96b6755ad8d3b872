#include "data/file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

#include "core/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

size_t entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

// Files of this process may not grow beyond the limit: the nearest thing to a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit limit = old_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit old_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("write_atomically writes, replaces and leaves nothing else behind") {
  const TempDir dir;
  write_atomically(dir / "file", Bytes{1, 2, 3});
  CHECK(read_file(dir / "file") == "\1\2\3");
  write_atomically(dir / "file", Bytes{});
  CHECK(read_file(dir / "file").empty());
  CHECK(entries(dir.path()) == 1);
}

TEST_CASE("write_atomically fails with the path and the reason, and keeps the old file") {
  const TempDir dir;
  const auto missing = dir / "none" / "file";
  CHECK(contains(message_of<std::runtime_error>([&] { write_atomically(missing, Bytes{1}); }),
                 "cannot write " + missing.string() + ": No such file"));

  std::filesystem::create_directories(dir / "folder" / "inside");
  CHECK(contains(message_of<std::runtime_error>([&] { write_atomically(dir / "folder", Bytes{1}); }),
                 "cannot write " + (dir / "folder").string()));
  CHECK(entries(dir.path()) == 1);

  write_atomically(dir / "file", Bytes{7});
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = message_of<std::runtime_error>([&] { write_atomically(dir / "file", Bytes(5000)); });
  }
  CHECK(contains(message, "cannot write " + (dir / "file").string() + ": File too large"));
  CHECK(read_file(dir / "file") == "\7");
  CHECK(entries(dir.path()) == 2);
}

TEST_CASE("read_bytes reads a whole file within its bound") {
  const TempDir dir;
  write_file(dir / "file", Bytes{1, 2, 3});
  CHECK(read_bytes(dir / "file", 3) == Bytes{1, 2, 3});
  CHECK(message_of<DataError>([&] { read_bytes(dir / "file", 2); }) ==
        (dir / "file").string() + ": holds 3 bytes, expected at most 2");
  CHECK(contains(message_of<DataError>([&] { read_bytes(dir / "none", 2); }), "none: no such file"));
}
