#include "data/files/checksum.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("CRC-32 gives the published check value, and checksums of parts can be combined") {
  CHECK(compute_checksum("123456789") == Checksum{9, 0xCBF43926});
  CHECK(format_crc32(0xCBF43926) == "cbf43926");
  CHECK(format_crc32(1) == "00000001");
  Checksum parts = compute_checksum("1234");
  parts.append("567", 3);
  parts.append(Checksum{});
  parts.append(compute_checksum("89"));
  CHECK(parts == compute_checksum("123456789"));
}

TEST_CASE("read_with_checksum() reads a range of a file for any number of parts") {
  const TempDir dir;
  std::string text;
  for (size_t i = 0; i < 3'500'001; ++i) text += static_cast<char>(i * i % 251);
  write_file(dir / "file", text);
  const File file((dir / "file").string(), O_RDONLY);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, text.size() - 5}) {
    std::string found(size, '\0');
    const Checksum checksum = read_with_checksum(file, found.data(), size, 5);
    CHECK(found == text.substr(5, size));
    CHECK(checksum == compute_checksum(found));
  }
  std::string beyond(text.size(), '\0');
  CHECK_THROWS_AS(read_with_checksum(file, beyond.data(), beyond.size(), 1), FileError);
}
