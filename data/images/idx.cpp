#include "data/images/idx.h"

#include <cstring>
#include <iomanip>

#include "data/files/gzip.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxIdxBytes = int64_t{1} << 31;
constexpr uint32_t kUnsignedBytes = 0x08;

uint32_t read_big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

std::string hexadecimal(uint32_t word) {
  std::ostringstream text;
  text << "0x" << std::hex << std::setfill('0') << std::setw(8) << word;
  return text.str();
}

int64_t count_header_bytes(int rank) {
  return 4 + 4 * int64_t{rank};
}

Shape parse_header(std::span<const uint8_t> bytes, int rank, const std::string& name) {
  const auto found = static_cast<int64_t>(bytes.size());
  const uint32_t expected_magic = kUnsignedBytes << 8 | static_cast<uint32_t>(rank);
  if (found >= 4 && read_big_endian(bytes.data()) != expected_magic)
    throw DataError(concat_text(name, ": expected the IDX magic number ", hexadecimal(expected_magic),
                                " (unsigned bytes, dimensions: ", rank, "), found ",
                                hexadecimal(read_big_endian(bytes.data()))));
  if (found < count_header_bytes(rank))
    throw DataError(concat_text(name, ": expected an IDX header of ", count_header_bytes(rank),
                                " bytes, found ", found, " bytes"));
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.append(read_big_endian(bytes.data() + 4 + 4 * i));
  return shape;
}

// Returns the product of the sizes, or -1 if it overflows.
int64_t count_payload_bytes(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(product, size, &product)) return -1;
  return product;
}

}  // namespace

Shape read_idx_shape(const std::filesystem::path& path, int rank) {
  return parse_header(read_unpacked_prefix(path, count_header_bytes(rank)), rank, path.string());
}

Tensor read_idx(const std::filesystem::path& path, int rank) {
  return parse_idx(read_unpacked(path, kMaxIdxBytes), rank, path.string());
}

Tensor parse_idx(std::span<const uint8_t> bytes, int rank, const std::string& name) {
  const Shape shape = parse_header(bytes, rank, name);
  const auto payload = bytes.subspan(static_cast<size_t>(count_header_bytes(rank)));
  const int64_t expected = count_payload_bytes(shape);
  if (expected != static_cast<int64_t>(payload.size()))
    throw DataError(concat_text(name, ": the header contains the sizes ", shape.to_string(), ", expected ",
                                expected < 0 ? "far more" : std::to_string(expected),
                                " bytes after it, found ", payload.size()));
  Tensor tensor = Tensor::empty(shape, DType::uint8);
  if (!payload.empty()) std::memcpy(tensor.raw_data(), payload.data(), payload.size());
  return tensor;
}

}  // namespace tapeformer
