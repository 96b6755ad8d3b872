#include "train/loop/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

// Returns the CRC-32C (Castagnoli) checksum of the bytes.
uint32_t compute_crc32c(std::string_view bytes) {
  constexpr uint32_t kPolynomial = 0x82F63B78;
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < entries.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ kPolynomial : value >> 1;
      entries[i] = value;
    }
    return entries;
  }();
  uint32_t sum = ~uint32_t{0};
  for (const char c : bytes) sum = sum >> 8 ^ table[(sum ^ static_cast<unsigned char>(c)) & 255];
  return ~sum;
}

template <class T>
std::string to_bytes(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// Returns `bytes` followed by their masked checksum, as in TFRecord files.
std::string append_checksum(const std::string& bytes) {
  constexpr uint32_t kMask = 0xA282EAD8;
  const uint32_t sum = compute_crc32c(bytes);
  return bytes + to_bytes((sum >> 15 | sum << 17) + kMask);
}

// Wire types of protobuf. An encoded field consists of a tag, which contains the field number and the wire
// type, and the value.
enum class WireType { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 };

std::string encode_varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string encode_tag(int field, WireType type) {
  return encode_varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(type));
}

std::string encode_integer_field(int field, int64_t value) {
  return encode_tag(field, WireType::varint) + encode_varint(static_cast<uint64_t>(value));
}

std::string encode_double_field(int field, double value) {
  return encode_tag(field, WireType::bits64) + to_bytes(value);
}

std::string encode_float_field(int field, float value) {
  return encode_tag(field, WireType::bits32) + to_bytes(value);
}

// Returns an encoded field whose value is a string, bytes or an encoded message.
std::string encode_bytes_field(int field, std::string_view bytes) {
  return encode_tag(field, WireType::bytes) + encode_varint(bytes.size()) + std::string(bytes);
}

double read_unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string make_file_name() {
  std::array<char, 65> host{};
  gethostname(host.data(), host.size() - 1);
  return concat_text("events.out.tfevents.", static_cast<int64_t>(read_unix_time() * 1000), ".", host.data(),
                     ".", getpid());
}

}  // namespace

void EventWriter::write_event(int64_t step, const std::string& field) {
  const std::string event = encode_double_field(1, read_unix_time()) + encode_integer_field(2, step) + field;
  const std::string record =
      append_checksum(to_bytes(static_cast<uint64_t>(event.size()))) + append_checksum(event);
  file_.write(record.data(), record.size());
}

EventWriter::EventWriter(const Folder& folder) : file_(folder.create_file(make_file_name())) {
  write_event(0, encode_bytes_field(3, "brain.Event:2"));  // field file_version
}

void EventWriter::write_session_start(int64_t step) {
  constexpr int kStart = 1;
  // Sets session_log.status to START.
  write_event(step, encode_bytes_field(7, encode_integer_field(1, kStart)));
}

void EventWriter::write_scalars(const MetricRecord& record) {
  std::string values;
  for (const auto& [field, value] : record) {
    const double number = get_metric_number(record, field, NAN);
    if (field == "step" || !std::isfinite(number)) continue;
    const std::string name = get_metric_text(record, "split") + "/" + field;
    // The fields are value.tag and value.simple_value.
    values += encode_bytes_field(
        1, encode_bytes_field(1, name) + encode_float_field(2, static_cast<float>(number)));
  }
  write_event(static_cast<int64_t>(get_metric_number(record, "step", 0)), encode_bytes_field(5, values));
}

void EventWriter::write_image(const std::string& name, int64_t step, std::string_view png, int64_t height,
                              int64_t width, int64_t channels) {
  // The fields are image.height, image.width, image.colorspace and image.encoded_image_string.
  const std::string image = encode_integer_field(1, height) + encode_integer_field(2, width) +
                            encode_integer_field(3, channels) + encode_bytes_field(4, png);
  write_event(step, encode_bytes_field(5, encode_bytes_field(1, encode_bytes_field(1, name) +
                                                                    encode_bytes_field(4, image))));
}

void EventWriter::write_text(const std::string& name, int64_t step, const std::string& markdown) {
  constexpr int kString = 7;
  const std::string shape = encode_bytes_field(2, encode_integer_field(1, 1));  // one dimension of size 1
  const std::string tensor =
      encode_integer_field(1, kString) + encode_bytes_field(2, shape) + encode_bytes_field(8, markdown);
  const std::string metadata =
      encode_bytes_field(1, encode_bytes_field(1, "text"));  // field plugin_data.plugin_name
  const std::string value =
      encode_bytes_field(1, name) + encode_bytes_field(8, tensor) + encode_bytes_field(9, metadata);
  write_event(step, encode_bytes_field(5, encode_bytes_field(1, value)));
}

}  // namespace tapeformer
