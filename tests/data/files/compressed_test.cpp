#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "data/files/gzip.h"
#include "data/text/text_source.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the bytes of a text of hexadecimal digits.
Bytes from_hex(const std::string& digits) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Sample {
  const char* program;
  Bytes packed, packed_empty;  // "hello\nworld\n" and "", as the program compresses them
};

const std::vector<Sample>& samples() {
  static const auto* const list = new std::vector<Sample>{
      {"xz",
       from_hex(
           "fd377a585a000004e6d6b4460200210116000000742fe5a301000b68656c6c6f0a776f726c640a0087c6ce77ce462bae"
           "0001240ca618d8d81fb6f37d010000000004595a"),
       from_hex("fd377a585a000004e6d6b446000000001cdf44211fb6f37d010000000004595a")},
      {"bzip2",
       from_hex("425a68393141592653596b5fb1dd00000241800010064490802000310c0821a369080723ae878bb9229c284835af"
                "d8ee80"),
       from_hex("425a683917724538509000000000")},
      {"zstd", from_hex("28b52ffd240c61000068656c6c6f0a776f726c640ab50e8717"),
       from_hex("28b52ffd240001000099e9d851")}};
  return *list;
}

}  // namespace

TEST_CASE("xz, bzip2 and zstd files are unpacked under any name") {
  const TempDir dir;
  const auto file = dir / "packed.txt";
  for (const Sample& sample : samples()) {
    CAPTURE(sample.program);
    write_file(file, sample.packed);
    CHECK(is_compressed(file));
    const Bytes unpacked = read_unpacked(file, 100);
    CHECK(view_as_text(unpacked, unpacked.size()) == "hello\nworld\n");
    CHECK(read_unpacked_prefix(file, 5).size() == 5);
    CHECK(compute_unpacked_digest(file).bytes == 12);
    const TextSource text({file});
    CHECK(text.view(0, 100) == "hello\nworld\n");
    CHECK(text.location(7) == file.string() + ":2 (byte 8)");
    CHECK(contains(message_of<DataError>([&] { read_unpacked(file, 11); }), "expected at most 11"));
    write_file(file, sample.packed_empty);
    CHECK(message_of<DataError>([&] {
            read_unpacked(file, 100);
          }).starts_with(file.string() + ": cannot be unpacked"));
  }
}

TEST_CASE("a truncated xz, bzip2 or zstd file is an error with the path") {
  const TempDir dir;
  const auto file = dir / "short";
  for (const Sample& sample : samples())
    for (size_t cut = 10; cut < sample.packed.size(); ++cut) {
      CAPTURE(sample.program);
      CAPTURE(cut);
      write_file(file,
                 Bytes(sample.packed.begin(), sample.packed.begin() + static_cast<std::ptrdiff_t>(cut)));
      CHECK(contains(message_of<DataError>([&] { read_unpacked(file, 100); }), file.string()));
    }
}

TEST_CASE("a text that begins like a bzip2 file is not compressed") {
  const TempDir dir;
  write_file(dir / "text", std::string("BZh9 is a word of this text\n"));
  CHECK(!is_compressed(dir / "text"));
  CHECK(read_unpacked(dir / "text", 100).size() == 28);
}
