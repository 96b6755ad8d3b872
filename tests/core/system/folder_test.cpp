#include "core/system/folder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

TEST_CASE("a folder's files are created, replaced and removed by name") {
  const TempDir dir;
  const Folder folder(dir.path().string());
  CHECK(folder.get_entry_kind("a") == Folder::Kind::none);
  folder.write_new_file("a", "1");
  CHECK_THROWS_AS(folder.write_new_file("a", "2"), FileError);
  folder.replace_file("a", "3");
  CHECK(read_file(dir / "a") == "3");
  const Folder inner = folder.create_folder("inner");
  inner.write_new_file("b", "4");
  CHECK(read_file(dir / "inner/b") == "4");
  folder.exchange("a", "inner");
  CHECK(folder.get_entry_kind("a") == Folder::Kind::folder);
  CHECK(folder.get_entry_kind("inner") == Folder::Kind::file);
  folder.remove_all("a");
  folder.remove_all("inner");
  folder.remove_all("none");
  CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("links in a folder are replaced or refused, and their targets are not changed") {
  const TempDir dir, other;
  write_file(other / "victim", std::string("precious"));
  fs::create_symlink(other / "victim", dir / "link");
  fs::create_directory_symlink(other.path(), dir / "folder");
  const Folder folder(dir.path().string());
  CHECK(folder.get_entry_kind("link") == Folder::Kind::link);
  CHECK_THROWS_AS(folder.create_file("link"), FileError);
  CHECK(contains(message_of<FileError>([&] { folder.open_file("link", O_WRONLY | O_APPEND); }),
                 "symbolic link"));
  CHECK(contains(message_of<FileError>([&] { folder.open_folder("folder"); }), "symbolic link"));
  folder.replace_file("link", "new");
  CHECK(folder.get_entry_kind("link") == Folder::Kind::file);
  folder.remove_all("folder");
  CHECK(read_file(other / "victim") == "precious");

  folder.replace_link("link", "elsewhere");
  CHECK(fs::read_symlink(dir / "link") == "elsewhere");
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 1);
}

TEST_CASE("a pipe in place of a file is refused without blocking") {
  const TempDir dir;
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  const Folder folder(dir.path().string());
  CHECK(folder.get_entry_kind("pipe") == Folder::Kind::other);
  CHECK(contains(message_of<FileError>([&] { folder.open_file("pipe", O_RDONLY); }), "regular file"));
  CHECK_THROWS_AS(folder.open_file("pipe", O_WRONLY | O_APPEND), FileError);
  CHECK(contains(message_of<FileError>([&] { tapeformer::read_file((dir / "pipe").string()); }),
                 "expected a regular file"));
}

TEST_CASE("temporary names are hidden, unique and recognised by is_temporary_name") {
  const std::string first = make_temporary_path("/a/b.c"), second = make_temporary_path("/a/b.c");
  CHECK(first.starts_with("/a/.b.c.tmp-"));
  CHECK(first != second);
  CHECK(is_temporary_name(first));
  CHECK(is_temporary_name(make_temporary_path("plain")));
  CHECK(make_temporary_path(std::string(255, 'x')).size() <= 255);
  for (const char* name : {"b.c", "b.tmp-", "b.tmp-1", "b.tmp-0123456789abcdeg", ".tmp"})
    CHECK_FALSE(is_temporary_name(name));
}
