#include "data/files/file.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

TEST_CASE("read_bytes() reads a file up to the maximum size") {
  const TempDir dir;
  write_file(dir / "file", Bytes{1, 2, 3});
  CHECK(read_bytes(dir / "file", 3) == Bytes{1, 2, 3});
  CHECK(message_of<DataError>([&] { read_bytes(dir / "file", 2); }) ==
        (dir / "file").string() + ": has 3 bytes, expected at most 2");
  CHECK(contains(message_of<DataError>([&] { read_bytes(dir / "none", 2); }), "none: no such file"));
}

TEST_CASE("an input is recognised in the outputs under every name, and inside of folders") {
  const TempDir dir;
  write_file(dir / "in/list", std::string("text"));
  write_file(dir / "in/other", std::string("text"));
  fs::create_directory(dir / "folder");
  write_file(dir / "out/list", std::string("text"));
  fs::create_symlink("../in/list", dir / "out/link");
  fs::create_hard_link(dir / "in/list", dir / "hard");
  fs::create_directory_symlink("in", dir / "in-link");
  fs::create_directory_symlink("../in", dir / "folder/link");
  fs::create_directory_symlink(".", dir / "folder/loop");
  const auto error = [](const std::vector<fs::path>& outputs, const std::vector<fs::path>& inputs) {
    return message_of<ConfigError>([&] { refuse_to_replace_inputs(outputs, inputs); });
  };
  const fs::path list = dir / "in/list";
  for (const fs::path& same : {list, dir / "in/../in/./list", dir / "out/link", dir / "hard",
                               dir / "in-link/list", dir / "in", dir / "in-link", dir / "folder"}) {
    CAPTURE(same.string());
    CHECK(contains(error({dir / "out/list", same}, {list}), "is an input of the command"));
    CHECK(contains(error({list}, {dir / "out/list", same}), "is an input of the command"));
  }
  CHECK(error({dir / "hard"}, {list}) == (dir / "hard").string() + ": is an input of the command (" +
                                             list.string() +
                                             "), so it is not replaced; choose another output");
  CHECK(error({dir / "out/list", dir / "none", dir / "in/other"}, {list, dir / "none"}).empty());
  CHECK(error({dir / "out/list"}, {dir / "in"}).empty());
}
