#include "data/files/archive.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "core/base/errors.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// A zip archive in hexadecimal, written by Python's zipfile. It contains two files: "folder/readme" is
// "hello" without compression, and "text" is "abc" repeated 200 times, compressed with deflate.
const std::string kArchiveHex =
    "504b03041400000000000000215086a6103605000000050000000d000000666f6c6465722f726561646d6568656c6c6f504b"
    "0304140000000800000021506ddf35ca0b0000005802000004000000746578744b4c4a4e1c45a388da0800504b0102140314"
    "00000000000000215086a6103605000000050000000d0000000000000000000000800100000000666f6c6465722f72656164"
    "6d65504b01021403140000000800000021506ddf35ca0b000000580200000400000000000000000000008001300000007465"
    "7874504b050600000000020002006d0000005d0000000000";

std::string archive_bytes() {
  std::string bytes;
  for (size_t i = 0; i < kArchiveHex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(kArchiveHex.substr(i, 2), nullptr, 16));
  return bytes;
}

// Returns the contents of the file `name` in any folder of the archive, or the message of the DataError that
// unpacking throws.
std::string unpacked_member(const std::string& archive, const std::string& name) {
  const TempDir dir;
  write_file(dir / "a.zip", archive);
  const std::string path = (dir / "out").string();
  const std::string error = message_of<DataError>([&] {
    File out(path, O_WRONLY | O_CREAT);
    ArchiveReader reader(dir / "a.zip", "a.zip", INT64_MAX);
    auto member = reader.next();
    while (member && member->name != name) member = reader.next();
    if (!member) throw DataError("a.zip: no such member");
    reader.unpack(out);
    CHECK(static_cast<int64_t>(out.size()) == member->bytes);
  });
  return error.empty() ? test::read_file(path) : error;
}

}  // namespace

TEST_CASE("members of a zip archive are unpacked") {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abc";
  CHECK(unpacked_member(archive_bytes(), "readme") == "hello");
  CHECK(unpacked_member(archive_bytes(), "text") == text);
}

TEST_CASE("a folder with a name outside of ASCII is removed from the names of its files") {
  std::string archive = archive_bytes();
  for (size_t at; (at = archive.find("folder")) != std::string::npos;) archive.replace(at, 6, "fold\xC3\xA9");
  archive[7] = archive[0x5D + 9] = 8;  // names are UTF-8, in both headers of the file
  CHECK(unpacked_member(archive, "readme") == "hello");
}

TEST_CASE("missing and damaged members of a zip archive are errors") {
  const std::string archive = archive_bytes();
  CHECK(contains(unpacked_member(archive, "none"), "a.zip: no such member"));
  CHECK(contains(unpacked_member("no archive", "text"),
                 "a.zip: cannot be unpacked: Unrecognized archive format"));
  CHECK(contains(unpacked_member(archive.substr(0, archive.size() - 10), "text"),
                 "a.zip: cannot be unpacked: "));
  // A changed byte anywhere in the archive causes an error, or has no effect on the contents of "text".
  const std::string whole = unpacked_member(archive, "text");
  for (size_t i = 0; i < archive.size(); ++i) {
    std::string damaged = archive;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    const std::string result = unpacked_member(damaged, "text");
    CHECK((result == whole || contains(result, "a.zip: ")));
  }
}

TEST_CASE("an archive with more bytes than the maximum is an error before the bytes are unpacked") {
  const TempDir dir;
  write_file(dir / "a.zip", archive_bytes());
  const auto count_members = [&](int64_t max_bytes) {
    ArchiveReader reader(dir / "a.zip", "https://localhost/a.zip", max_bytes);
    int members = 0;
    while (reader.next()) ++members;
    return members;
  };
  CHECK(count_members(1000) == 2);
  CHECK(message_of<DataError>([&] { count_members(600); }) ==
        "https://localhost/a.zip: contains more bytes than expected");
}
