#include "data/images/idx.h"

#include <doctest/doctest.h>

#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string parsing_error(const Bytes& bytes, int rank) {
  return message_of<DataError>([&] { parse_idx(bytes, rank, "the-file"); });
}

}  // namespace

TEST_CASE("read_idx() reads images and labels, plain and gzip") {
  const TempDir dir;
  const Bytes images = idx_bytes(0x803, {3, 4, 5}, 60);
  write_file(dir / "images", images);
  write_file(dir / "images.gz", gzipped(images));
  for (const char* name : {"images", "images.gz"}) {
    CHECK(read_idx_shape(dir / name, 3) == Shape{3, 4, 5});
    const Tensor tensor = read_idx(dir / name, 3);
    CHECK(tensor.shape() == Shape{3, 4, 5});
    CHECK(tensor.dtype() == DType::uint8);
    CHECK(tensor.data<uint8_t>()[59] == 59 * 7 % 251);
  }
  CHECK(parse_idx(idx_bytes(0x801, {6}, 6), 1, "labels").shape() == Shape{6});
  CHECK(parse_idx(idx_bytes(0x803, {0, 28, 28}, 0), 3, "nothing").numel() == 0);
}

TEST_CASE("the error about a wrong magic number names the file, the expected number and the found number") {
  CHECK(
      parsing_error(idx_bytes(0x801, {6}, 6), 3) ==
      "the-file: expected the IDX magic number 0x00000803 (unsigned bytes, dimensions: 3), found 0x00000801");
  CHECK(contains(parsing_error(idx_bytes(0xD03, {1, 2, 2}, 16), 3), "found 0x00000d03"));
  CHECK(contains(parsing_error({'<', 'h', 't', 'm', 'l'}, 3), "found 0x3c68746d"));
}

TEST_CASE("an IDX file that is truncated at any byte or too long is an error") {
  const Bytes whole = idx_bytes(0x803, {2, 3, 3}, 18);
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    CAPTURE(cut);
    const std::string message =
        parsing_error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)), 3);
    CHECK(contains(message, "the-file: "));
    CHECK(contains(message, "expected"));
  }
  CHECK(parsing_error(idx_bytes(0x803, {2, 3, 3}, 19), 3) ==
        "the-file: the header contains the sizes (2, 3, 3), expected 18 bytes after it, found 19");
}

TEST_CASE("invalid sizes are errors before memory is allocated") {
  CHECK(contains(parsing_error(idx_bytes(0x803, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 100), 3),
                 "expected far more bytes after it, found 100"));
  CHECK(contains(parsing_error(idx_bytes(0x803, {0xFFFFFFFF, 28, 28}, 100), 3),
                 "expected 3367254359280 bytes"));
}
