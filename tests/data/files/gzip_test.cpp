#include "data/files/gzip.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/base/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Bytes random_bytes(size_t count) {
  Bytes bytes(count);
  uint32_t state = 1;
  for (auto& byte : bytes) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::string unpacking_error(const std::filesystem::path& path) {
  return message_of<DataError>([&] { read_unpacked(path, 1 << 20); });
}

}  // namespace

TEST_CASE("read_unpacked() returns the same bytes for a plain and a gzip file with any name") {
  const TempDir dir;
  for (const size_t count : {0, 1, 2, 1000, 65535, 65536, 65537, 300001}) {
    CAPTURE(count);
    const Bytes bytes = random_bytes(count);
    write_file(dir / "plain.gz", bytes);
    write_file(dir / "packed", gzipped(bytes));
    CHECK(read_unpacked(dir / "plain.gz", 1 << 20) == bytes);
    CHECK(read_unpacked(dir / "packed", 1 << 20) == bytes);
  }
}

TEST_CASE("a gzip file of several streams is read completely") {
  const TempDir dir;
  Bytes packed = gzipped(random_bytes(1000));
  const Bytes second = gzipped(random_bytes(500));
  packed.insert(packed.end(), second.begin(), second.end());
  write_file(dir / "two.gz", packed);
  CHECK(read_unpacked(dir / "two.gz", 1 << 20).size() == 1500);
}

TEST_CASE("a gzip file that is truncated at any byte is an error with the path") {
  const TempDir dir;
  const Bytes packed = gzipped(random_bytes(300));
  for (size_t cut = 2; cut < packed.size(); ++cut) {
    CAPTURE(cut);
    write_file(dir / "short.gz", Bytes(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(cut)));
    const std::string message = unpacking_error(dir / "short.gz");
    CHECK(contains(message, (dir / "short.gz").string()));
    CHECK(contains(message, "ends early"));
  }
}

TEST_CASE("corrupt gzip data is an error") {
  const TempDir dir;
  const Bytes packed = gzipped(random_bytes(300));
  for (const size_t position : {size_t{2}, size_t{12}, packed.size() - 8, packed.size() - 1}) {
    CAPTURE(position);
    Bytes damaged = packed;
    damaged[position] ^= 0xFF;
    write_file(dir / "damaged.gz", damaged);
    CHECK(
        contains(unpacking_error(dir / "damaged.gz"), (dir / "damaged.gz").string() + ": corrupt gzip data"));
  }
}

TEST_CASE(
    "contents above the maximum size are errors, plain and gzip, and contents of the maximum size are read") {
  const TempDir dir;
  const Bytes bytes(100000, 0);
  write_file(dir / "plain", bytes);
  write_file(dir / "packed", gzipped(bytes));
  for (const char* name : {"plain", "packed"}) {
    CHECK(read_unpacked(dir / name, 100000).size() == 100000);
    CHECK(
        contains(message_of<DataError>([&] { read_unpacked(dir / name, 99999); }), "expected at most 99999"));
  }
}

TEST_CASE("missing files and directories are data errors with the path") {
  const TempDir dir;
  CHECK(unpacking_error(dir / "none") == (dir / "none").string() + ": no such file");
  CHECK(unpacking_error(dir.path()) == dir.path().string() + ": is not a regular file");
}

TEST_CASE("a pipe instead of a file is an error and does not block") {
  const TempDir dir;
  REQUIRE(mkfifo((dir / "pipe.gz").c_str(), 0600) == 0);
  CHECK(contains(unpacking_error(dir / "pipe.gz"), "is not a regular file"));
}

TEST_CASE("the prefix and the digest of a gzip file are computed from its unpacked contents") {
  const TempDir dir;
  const Bytes bytes = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  write_file(dir / "plain", bytes);
  write_file(dir / "packed", gzipped(bytes));
  for (const char* name : {"plain", "packed"}) {
    CHECK(read_unpacked_prefix(dir / name, 4) == Bytes{'1', '2', '3', '4'});
    CHECK(read_unpacked_prefix(dir / name, 40) == bytes);
    CHECK(compute_unpacked_digest(dir / name) ==
          Digest{9,
                 "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"});  // output of sha256sum
  }
}
