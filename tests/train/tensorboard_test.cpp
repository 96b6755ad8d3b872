// Tests of TensorBoard event files. The tests compare checksums of records, and decode events with the
// program protoc.
#include "train/loop/tensorboard.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

// Returns the CRC-32C of the bytes, computed bit by bit.
uint32_t crc32c_of(const std::string& bytes) {
  uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? sum >> 1 ^ 0x82F63B78 : sum >> 1;
  }
  return ~sum;
}

template <class T>
T value_at(const std::string& text, size_t offset) {
  T value;
  std::memcpy(&value, text.data() + offset, sizeof value);
  return value;
}

// Returns `size` bytes of a file from `offset`. Checks the masked checksum after the bytes, and sets `offset`
// to the end of the checksum.
std::string read_checked(const std::string& file, size_t& offset, size_t size) {
  const std::string bytes = file.substr(offset, size);
  const uint32_t sum = crc32c_of(bytes);
  CHECK(value_at<uint32_t>(file, offset + size) == (sum >> 15 | sum << 17) + 0xA282EAD8);
  offset += size + 4;
  return bytes;
}

// Returns the encoded events of the only event file in a folder.
std::vector<std::string> events_in(const fs::path& folder) {
  std::vector<std::string> events;
  for (const auto& entry : fs::directory_iterator(folder)) {
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    const std::string file = read_file(entry.path());
    for (size_t offset = 0; offset < file.size();) {
      const auto size = value_at<uint64_t>(read_checked(file, offset, 8), 0);
      events.push_back(read_checked(file, offset, size));
    }
  }
  return events;
}

// Returns the text that the program protoc prints for an encoded event.
std::string decoded(const std::string& event) {
  const TempDir dir;
  std::ofstream(dir.path() / "event", std::ios::binary) << event;
  const std::string protos = fs::path(__FILE__).parent_path().string();
  const std::string command =
      "protoc -I '" + protos + "' --decode=tapeformer.tensorboard.Event tensorboard_event.proto < '" +
      (dir.path() / "event").string() + "' > '" + (dir.path() / "text").string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  return read_file(dir.path() / "text");
}

}  // namespace

TEST_CASE("TensorBoard: event files contain checked records of scalars, images and texts") {
  CHECK(crc32c_of("123456789") == 0xE3069283);  // check value of CRC-32C
  const TempDir dir;
  {
    EventWriter writer{Folder(dir.path().string())};
    writer.write_session_start(6);
    writer.write_scalars({{"step", int64_t{300}}, {"split", "train"}, {"loss_nats", 0.5}, {"lr", NAN}});
    writer.write_image("samples", 8, "PNG bytes", 2, 300, 1);
    writer.write_text("config", 0, "x = 1");
  }
  const auto events = events_in(dir.path());
  REQUIRE(events.size() == 5);
  if (std::system("protoc --version > /dev/null 2>&1") != 0) {
    MESSAGE("skipped: the program protoc is missing");
    return;
  }
  std::vector<std::string> texts;
  for (const std::string& event : events) {
    const std::string text = decoded(event);
    CHECK(std::stod(text.substr(text.find(' '))) > 1.6e9);  // field wall_time, in seconds since 1970
    texts.push_back(text.substr(text.find('\n') + 1));
  }
  CHECK(texts[0] == "step: 0\nfile_version: \"brain.Event:2\"\n");
  CHECK(texts[1] == "step: 6\nsession_log {\n  status: START\n}\n");
  CHECK(texts[2] ==
        "step: 300\nsummary {\n  value {\n    tag: \"train/loss_nats\"\n    simple_value: 0.5\n  }\n}\n");
  CHECK(
      texts[3] ==
      "step: 8\nsummary {\n  value {\n    tag: \"samples\"\n    image {\n      height: 2\n      width: 300\n"
      "      colorspace: 1\n      encoded_image_string: \"PNG bytes\"\n    }\n  }\n}\n");
  CHECK(texts[4] ==
        "step: 0\nsummary {\n  value {\n    tag: \"config\"\n    tensor {\n      dtype: STRING\n"
        "      tensor_shape {\n        dim {\n          size: 1\n        }\n      }\n"
        "      string_val: \"x = 1\"\n    }\n    metadata {\n      plugin_data {\n"
        "        plugin_name: \"text\"\n      }\n    }\n  }\n}\n");
}
