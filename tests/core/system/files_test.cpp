#include "core/system/files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/file_size_limit.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

size_t entries(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("replace_file() writes, replaces and leaves nothing else behind") {
  const TempDir dir;
  replace_file((dir / "file").string(), "\1\2\3");
  CHECK(tapeformer::read_file((dir / "file").string()) == "\1\2\3");
  replace_file((dir / "file").string(), "");
  CHECK(tapeformer::read_file((dir / "file").string()).empty());
  CHECK(entries(dir.path()) == 1);
}

TEST_CASE("replace_file() does not write through a link in place of its temporary file") {
  const TempDir dir;
  // If replace_file() used the process ID and a counter in the name of its temporary file, another user could
  // guess this name and create a link with it.
  const std::string predictable = "file.tmp-" + std::to_string(getpid()) + "-0";
  write_file(dir / "victim", std::string("precious"));
  std::filesystem::create_symlink(dir / "victim", dir / predictable);
  replace_file((dir / "file").string(), "new");
  CHECK(read_file(dir / "victim") == "precious");
  CHECK(read_file(dir / "file") == "new");
}

TEST_CASE("replace_file() keeps links and pipes") {
  const TempDir dir;
  replace_file((dir / "file").string(), "old");
  std::filesystem::create_symlink("file", dir / "link");
  replace_file((dir / "link").string(), "new");
  CHECK(std::filesystem::is_symlink(dir / "link"));
  CHECK(read_file((dir / "file").string()) == "new");
  const std::string pipe = (dir / "pipe").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const File reader(pipe, O_RDWR);  // opening for reading alone would wait for a writer
  replace_file(pipe, "through");
  std::string text(7, ' ');
  CHECK(::read(reader.descriptor(), text.data(), text.size()) == 7);
  CHECK(text == "through");
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("a folder has one lock at a time, until the lock is destroyed") {
  const TempDir dir;
  const std::string path = dir.path().string();
  {
    const FolderLock lock(path);
    try {
      const FolderLock second(path);
      FAIL("locked twice");
    } catch (const FileError& error) {
      CHECK(error.error_number() == EWOULDBLOCK);
    }
  }
  CHECK_NOTHROW(FolderLock{path});
}

TEST_CASE("replace_file() fails with the path and the reason, and keeps the old file") {
  const TempDir dir;
  const auto missing = dir / "none" / "file";
  CHECK(contains(message_of<std::runtime_error>([&] { replace_file(missing.string(), "x"); }),
                 "cannot write " + missing.string() + ": No such file"));

  std::filesystem::create_directories(dir / "folder" / "inside");
  CHECK(contains(message_of<std::runtime_error>([&] { replace_file((dir / "folder").string(), "x"); }),
                 "cannot write " + (dir / "folder").string()));
  CHECK(entries(dir.path()) == 1);

  replace_file((dir / "file").string(), "\7");
  std::string message;
  {
    const FileSizeLimit limit(1000);
    message = message_of<std::runtime_error>(
        [&] { replace_file((dir / "file").string(), std::string(5000, 'x')); });
  }
  CHECK(contains(message, "cannot write " + (dir / "file").string() + ": File too large"));
  CHECK(tapeformer::read_file((dir / "file").string()) == "\7");
  CHECK(entries(dir.path()) == 2);
}
