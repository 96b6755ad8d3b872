#include "train/pretrained/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "data/files/text_lines.h"

namespace tapeformer {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF data is little-endian");

constexpr uint64_t kMaxNameBytes = 1 << 16;
constexpr uint64_t kMaxTextBytes = 1 << 24;  // of a string of the metadata
constexpr uint64_t kMaxElements = 1 << 22;   // of all lists of the metadata together
constexpr uint64_t kMaxEntries = 100'000;    // of the metadata, and of the tensors
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint32_t kMaxDimensions = 4;

template <class... Args>
[[noreturn]] void fail_header(const Args&... message) {
  throw CheckpointError(concat_text(message...));
}

std::string quote(const std::string& name) {
  constexpr size_t kMaxShown = 100;
  return "\"" + escape_line(name.size() > kMaxShown ? name.substr(0, kMaxShown) + "..." : name) + "\"";
}

// The bytes of a file in order.
class Cursor {
 public:
  explicit Cursor(const File& file) : file_(file), size_(file.size()) {}

  uint64_t offset() const { return offset_; }
  uint64_t size() const { return size_; }
  uint64_t rest() const { return size_ - offset_; }
  template <class T>
  T number() {
    T value;
    copy(&value, sizeof value);
    return value;
  }
  std::string text(uint64_t max_bytes, const char* what) {
    const auto length = number<uint64_t>();
    if (length > rest() || length > max_bytes)
      fail_header(what, " at byte ", offset_ - sizeof length, " has ", length, " bytes, expected at most ",
                  std::min(rest(), max_bytes));
    std::string value(length, '\0');
    copy(value.data(), length);
    if (find_invalid_utf8(value) != std::string::npos)
      fail_header(what, " at byte ", offset_ - length, " is not valid UTF-8");
    return value;
  }

 private:
  void copy(void* target, uint64_t count) {
    if (count > rest()) fail_header("is cut off at byte ", size_, ", within the header");
    auto* out = static_cast<char*>(target);
    while (count > 0) {
      if (offset_ < buffer_begin_ || offset_ >= buffer_begin_ + buffer_.size()) fill();
      const uint64_t at = offset_ - buffer_begin_, part = std::min<uint64_t>(count, buffer_.size() - at);
      std::memcpy(out, buffer_.data() + at, part);
      out += part;
      offset_ += part;
      count -= part;
    }
  }
  void fill() {
    constexpr uint64_t kBufferBytes = 1 << 20;
    buffer_begin_ = offset_;
    buffer_.resize(std::min(kBufferBytes, rest()));
    file_.read_at(buffer_.data(), buffer_.size(), offset_);
  }

  const File& file_;
  uint64_t size_, offset_ = 0;
  std::string buffer_;
  uint64_t buffer_begin_ = 0;
};

enum class ValueType : uint32_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  float32,
  boolean,
  string,
  array,
  uint64,
  int64,
  float64
};

// Calls f(std::type_identity<T>()) with the C++ type of a number. Returns false for other types.
template <class F>
bool with_number_type(ValueType type, F f) {
  switch (type) {
    case ValueType::uint8:
      return f(std::type_identity<uint8_t>()), true;
    case ValueType::int8:
      return f(std::type_identity<int8_t>()), true;
    case ValueType::uint16:
      return f(std::type_identity<uint16_t>()), true;
    case ValueType::int16:
      return f(std::type_identity<int16_t>()), true;
    case ValueType::uint32:
      return f(std::type_identity<uint32_t>()), true;
    case ValueType::int32:
      return f(std::type_identity<int32_t>()), true;
    case ValueType::float32:
      return f(std::type_identity<float>()), true;
    case ValueType::boolean:
      return f(std::type_identity<bool>()), true;
    case ValueType::uint64:
      return f(std::type_identity<uint64_t>()), true;
    case ValueType::int64:
      return f(std::type_identity<int64_t>()), true;
    case ValueType::float64:
      return f(std::type_identity<double>()), true;
    case ValueType::string:
    case ValueType::array:
      break;
  }
  return false;
}

template <class T>
auto read_number(Cursor& cursor) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto byte = cursor.number<uint8_t>();
    if (byte > 1) fail_header("expected a boolean 0 or 1 at byte ", cursor.offset() - 1, ", got ", int{byte});
    return int64_t{byte};
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(cursor.number<T>());
  } else {
    const T value = cursor.number<T>();
    if constexpr (std::is_same_v<T, uint64_t>)
      if (value > static_cast<uint64_t>(INT64_MAX))
        fail_header("the number ", value, " is larger than ", INT64_MAX);
    return static_cast<int64_t>(value);
  }
}

GgufValue read_list(Cursor& cursor, uint64_t& elements) {
  const auto type = static_cast<ValueType>(cursor.number<uint32_t>());
  const auto count = cursor.number<uint64_t>();
  if (count > cursor.rest() || count > kMaxElements - elements)
    fail_header("a list has ", count, " elements, expected at most ",
                std::min(cursor.rest(), kMaxElements - elements));
  elements += count;
  GgufValue list;
  if (type == ValueType::string) {
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < count; ++i) texts.push_back(cursor.text(kMaxTextBytes, "a string"));
    return texts;
  }
  const bool is_number = with_number_type(type, [&]<class T>(std::type_identity<T>) {
    std::vector<decltype(read_number<T>(cursor))> numbers;
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(read_number<T>(cursor));
    list = std::move(numbers);
  });
  if (!is_number)
    fail_header("has a list of the type ", static_cast<uint32_t>(type), ", expected numbers or strings");
  return list;
}

GgufValue read_value(Cursor& cursor, uint64_t& elements) {
  const auto type = static_cast<ValueType>(cursor.number<uint32_t>());
  if (type == ValueType::string) return cursor.text(kMaxTextBytes, "a string");
  if (type == ValueType::array) return read_list(cursor, elements);
  GgufValue value;
  const bool is_number = with_number_type(type, [&]<class T>(std::type_identity<T>) {
    const auto number = read_number<T>(cursor);
    if constexpr (std::is_same_v<T, bool>)
      value = number != 0;
    else
      value = number;
  });
  if (!is_number) fail_header("has a value of the unknown type ", static_cast<uint32_t>(type));
  return value;
}

// Returns the number of bytes of a tensor. Checks that its size does not overflow.
uint64_t compute_bytes(const std::string& name, const GgufTensor& tensor) {
  uint64_t values = 1, bytes = 0;
  for (const int64_t size : tensor.shape)
    if (__builtin_mul_overflow(values, static_cast<uint64_t>(size), &values)) values = UINT64_MAX;
  const auto block = static_cast<uint64_t>(tensor.type->block_values);
  if (tensor.shape[-1] % tensor.type->block_values != 0)
    fail_header("tensor ", quote(name), " of shape ", tensor.shape.to_string(), ": a row of the type ",
                tensor.type->name, " must have a multiple of ", block, " values");
  const bool overflows =
      values > static_cast<uint64_t>(INT64_MAX) / sizeof(double) ||
      __builtin_mul_overflow(values / block, static_cast<uint64_t>(tensor.type->block_bytes), &bytes);
  if (overflows) fail_header("tensor ", quote(name), ": the shape ", tensor.shape.to_string(), " overflows");
  return bytes;
}

GgufTensor read_tensor(Cursor& cursor, const std::string& name) {
  const auto rank = cursor.number<uint32_t>();
  if (rank < 1 || rank > kMaxDimensions)
    fail_header("tensor ", quote(name), " has ", rank, " dimensions, expected 1 to ", kMaxDimensions);
  // The file lists the dimension of a row first.
  GgufTensor tensor;
  tensor.shape = Shape::filled(static_cast<int>(rank), 0);
  for (int dim = static_cast<int>(rank) - 1; dim >= 0; --dim) {
    const auto size = cursor.number<uint64_t>();
    if (size < 1 || size > static_cast<uint64_t>(INT64_MAX))
      fail_header("tensor ", quote(name), " has a dimension of the size ", size, ", expected at least 1");
    tensor.shape[dim] = static_cast<int64_t>(size);
  }
  const auto number = cursor.number<uint32_t>();
  tensor.type = find_gguf_type(number);
  if (!tensor.type)
    fail_header("tensor ", quote(name), " has the type ", number,
                ", expected F32, F64, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K");
  tensor.offset = cursor.number<uint64_t>();
  tensor.bytes = compute_bytes(name, tensor);
  return tensor;
}

uint64_t read_alignment(const std::map<std::string, GgufValue>& metadata) {
  constexpr uint64_t kDefault = 32;
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefault;
  const int64_t* const value = std::get_if<int64_t>(&found->second);
  if (!value || *value < 1 || static_cast<uint64_t>(*value) > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*value)))
    fail_header("general.alignment: expected a power of two up to ", kMaxAlignment);
  return static_cast<uint64_t>(*value);
}

// Checks that each tensor begins at the first aligned byte after the tensor before it, and that the last one
// ends the file. Otherwise the header is damaged, and the data may begin at another byte.
void check_layout(const std::map<std::string, GgufTensor>& tensors, uint64_t alignment, uint64_t data_bytes) {
  std::vector<std::pair<const std::string, GgufTensor> const*> in_order;
  for (const auto& item : tensors) in_order.push_back(&item);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto* a, const auto* b) { return a->second.offset < b->second.offset; });
  uint64_t end = 0;
  for (const auto* item : in_order) {
    const auto& [name, tensor] = *item;
    const uint64_t begin = (end + alignment - 1) / alignment * alignment;
    if (tensor.offset != begin)
      fail_header("tensor ", quote(name), " begins at byte ", tensor.offset, " of the data, expected ",
                  begin);
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset)
      fail_header("tensor ", quote(name), " has ", tensor.bytes, " bytes from byte ", tensor.offset,
                  ", and the file has ", data_bytes, " bytes of data; it may be cut off");
    end = tensor.offset + tensor.bytes;
  }
  if (data_bytes - end >= alignment)
    fail_header("has ", data_bytes - end, " bytes after the tensors, expected less than ", alignment);
}

// Reads `count` entries with names, and calls read(name) for each.
template <class F>
void read_entries(Cursor& cursor, uint64_t count, const char* what, F read) {
  constexpr uint64_t kMinEntryBytes = 8 + 4;
  if (count > cursor.rest() / kMinEntryBytes || count > kMaxEntries)
    fail_header("has ", count, " ", what, "s, expected at most ",
                std::min(cursor.rest() / kMinEntryBytes, kMaxEntries));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string name = cursor.text(kMaxNameBytes, "a name");
    if (!read(name)) fail_header("has two ", what, "s named ", quote(name));
  }
}

}  // namespace

GgufHeader read_gguf_header(const File& file) {
  Cursor cursor(file);
  std::string magic;
  for (int i = 0; i < 4; ++i) magic += cursor.number<char>();
  if (magic != "GGUF") fail_header("expected the first bytes \"GGUF\"");
  const auto version = cursor.number<uint32_t>();
  if (version != 2 && version != 3)
    fail_header("expected the version 2 or 3 with little-endian numbers, got ", version);
  const auto tensor_count = cursor.number<uint64_t>(), value_count = cursor.number<uint64_t>();
  GgufHeader header;
  uint64_t elements = 0;
  read_entries(cursor, value_count, "key", [&](const std::string& name) {
    return header.metadata.emplace(name, read_value(cursor, elements)).second;
  });
  read_entries(cursor, tensor_count, "tensor", [&](const std::string& name) {
    return header.tensors.emplace(name, read_tensor(cursor, name)).second;
  });
  const uint64_t alignment = read_alignment(header.metadata);
  header.data_begin = (cursor.offset() + alignment - 1) / alignment * alignment;
  check_layout(header.tensors, alignment, cursor.size() - std::min(cursor.size(), header.data_begin));
  return header;
}

}  // namespace tapeformer
