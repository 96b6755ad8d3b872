#include "data/files/file.h"

#include <doctest/doctest.h>

#include "core/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("read_bytes() reads a file up to the maximum size") {
  const TempDir dir;
  write_file(dir / "file", Bytes{1, 2, 3});
  CHECK(read_bytes(dir / "file", 3) == Bytes{1, 2, 3});
  CHECK(message_of<DataError>([&] { read_bytes(dir / "file", 2); }) ==
        (dir / "file").string() + ": has 3 bytes, expected at most 2");
  CHECK(contains(message_of<DataError>([&] { read_bytes(dir / "none", 2); }), "none: no such file"));
}
