#include "train/pretrained/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/dtype.h"
#include "core/base/float16.h"

namespace tapeformer {
namespace {

constexpr uint64_t kTensorAlignment = 32;
constexpr int64_t kBlock = 32;

// Numbers of the types of the metadata.
enum : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10 };

class Header {
 public:
  template <class T>
  void add(T number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void add_text(const std::string& text) {
    add(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  void add_value(const GgufValue& value) {
    std::visit([this](const auto& x) { add_typed(x); }, value);
  }
  void pad() {
    bytes_.append((kTensorAlignment - bytes_.size() % kTensorAlignment) % kTensorAlignment, '\0');
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void add_typed(bool x) {
    add(kBool);
    add(static_cast<uint8_t>(x));
  }
  void add_typed(int64_t x) {
    const bool is_small = x >= 0 && x <= std::numeric_limits<uint32_t>::max();
    add(is_small ? kUint32 : kUint64);
    is_small ? add(static_cast<uint32_t>(x)) : add(static_cast<uint64_t>(x));
  }
  void add_typed(double x) {
    add(kFloat32);
    add(static_cast<float>(x));
  }
  void add_typed(const std::string& x) {
    add(kString);
    add_text(x);
  }
  void add_typed(const std::vector<int64_t>& list) {
    add_list(kInt32, list.size());
    for (const int64_t x : list) add(static_cast<int32_t>(x));
  }
  void add_typed(const std::vector<double>& list) {
    add_list(kFloat32, list.size());
    for (const double x : list) add(static_cast<float>(x));
  }
  void add_typed(const std::vector<std::string>& list) {
    add_list(kString, list.size());
    for (const std::string& x : list) add_text(x);
  }
  void add_list(uint32_t type, size_t count) {
    add(kArray);
    add(type);
    add(static_cast<uint64_t>(count));
  }

  std::string bytes_;
};

struct TypeInfo {
  uint32_t number;
  int64_t block_values, block_bytes;
};

TypeInfo get_info(GgufWriteType type) {
  switch (type) {
    case GgufWriteType::float16:
      return {1, 1, 2};
    case GgufWriteType::bfloat16:
      return {30, 1, 2};
    case GgufWriteType::q8_0:
      return {8, kBlock, kBlock + 2};
    case GgufWriteType::float32:
      break;
  }
  return {0, 1, 4};
}

// Writes a block of 32 values at `out`.
void write_q8_block(const float* values, uint8_t* out) {
  float largest = 0;
  for (int64_t i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(values[i]));
  const float d = largest / 127, inverse = d > 0 ? 1 / d : 0;
  const uint16_t half = round_to_float16(d);
  std::memcpy(out, &half, sizeof half);
  for (int64_t i = 0; i < kBlock; ++i)
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::round(values[i] * inverse)));
}

std::vector<uint8_t> narrow(const float* values, int64_t count, GgufWriteType type) {
  const TypeInfo info = get_info(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(count / info.block_values * info.block_bytes));
  for (int64_t i = 0; i < count / info.block_values; ++i) {
    uint8_t* const out = bytes.data() + i * info.block_bytes;
    if (type == GgufWriteType::q8_0) {
      write_q8_block(values + i * kBlock, out);
    } else if (type == GgufWriteType::float32) {
      std::memcpy(out, values + i, sizeof *values);
    } else {
      const uint16_t half = type == GgufWriteType::float16 ? round_to_float16(values[i])
                                                           : std::bit_cast<uint16_t>(BFloat16(values[i]));
      std::memcpy(out, &half, sizeof half);
    }
  }
  return bytes;
}

uint64_t align(uint64_t offset) {
  return (offset + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

uint64_t count_bytes(const GgufOutput& tensor) {
  const TypeInfo info = get_info(tensor.type);
  return static_cast<uint64_t>(tensor.shape.numel() / info.block_values * info.block_bytes);
}

}  // namespace

void write_gguf(File& file, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                const std::vector<GgufOutput>& tensors) {
  Header header;
  header.add<uint32_t>(0x46554747);  // "GGUF"
  header.add<uint32_t>(3);
  header.add<uint64_t>(tensors.size());
  header.add<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.add_text(key);
    header.add_value(value);
  }
  uint64_t offset = 0;
  for (const GgufOutput& tensor : tensors) {
    header.add_text(tensor.name);
    header.add(static_cast<uint32_t>(tensor.shape.rank()));
    // The file lists the dimension of a row first.
    for (int dim = tensor.shape.rank() - 1; dim >= 0; --dim)
      header.add(static_cast<uint64_t>(tensor.shape[dim]));
    header.add(get_info(tensor.type).number);
    header.add(offset);
    offset = align(offset + count_bytes(tensor));
  }
  header.pad();
  file.write(header.bytes().data(), header.bytes().size());
  for (const GgufOutput& output : tensors) {
    const Tensor tensor = output.read();
    std::vector<uint8_t> bytes = narrow(tensor.data<float>(), tensor.numel(), output.type);
    bytes.resize(align(bytes.size()));
    file.write(bytes.data(), bytes.size());
  }
  file.sync();
}

}  // namespace tapeformer
