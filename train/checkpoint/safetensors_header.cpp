#include "train/checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "core/errors.h"
#include "core/system/printable.h"

namespace tapeformer {
namespace {

constexpr DType kDTypes[] = {DType::float32, DType::float64, DType::bfloat16,
                             DType::int32,   DType::int64,   DType::uint8};

constexpr size_t kMaxEntries = 100'000;  // limits the memory that a header with many small entries can use

template <class... Args>
[[noreturn]] void fail(const Args&... message) {
  throw CheckpointError(concat_text(message...));
}

std::string format_tensor_name(std::string name) {
  if (name.size() > 100) name = name.substr(0, 97) + "...";
  return "\"" + escape_line(name) + "\"";
}

// A SAX handler that fills a SafetensorsHeader. Unlike nlohmann::json::parse, it detects duplicate names and
// limits the nesting.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(SafetensorsHeader& header) : header_(header) {}

  bool start_object(size_t) override {
    if (level_ == Level::outside) {
      level_ = Level::top;
    } else if (level_ == Level::top) {
      level_ = name_ == "__metadata__" ? Level::metadata : Level::tensor;
      entry_ = {};
      fields_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::tensor) {
      if (fields_.size() != 3)
        fail("tensor ", format_tensor_name(name_), " lacks dtype, shape or data_offsets");
      header_.entries.emplace(name_, entry_);
      if (header_.entries.size() > kMaxEntries) fail("more than ", kMaxEntries, " tensors");
    }
    level_ = level_ == Level::top ? Level::outside : Level::top;
    return true;
  }

  bool key(std::string& text) override {
    if (level_ == Level::top) {
      name_ = text;
      if (!names_.insert(text).second) fail("two entries named ", format_tensor_name(text));
    } else {
      field_ = text;
      const bool known = text == "dtype" || text == "shape" || text == "data_offsets";
      if (level_ == Level::tensor && !known)
        fail("tensor ", format_tensor_name(name_), " has an unknown field ", format_tensor_name(text));
      if (level_ == Level::tensor && !fields_.insert(text).second)
        fail("tensor ", format_tensor_name(name_), " has two fields named ", format_tensor_name(text));
    }
    return true;
  }

  bool string(std::string& text) override {
    if (level_ == Level::metadata) {
      if (!header_.metadata.emplace(field_, text).second)
        fail("two metadata entries named ", format_tensor_name(field_));
      if (header_.metadata.size() > kMaxEntries) fail("more than ", kMaxEntries, " metadata entries");
      return true;
    }
    if (level_ != Level::tensor || field_ != "dtype") unexpected("a string");
    const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                    [&](DType dtype) { return text == get_safetensors_dtype_name(dtype); });
    if (known == std::end(kDTypes))
      fail("tensor ", format_tensor_name(name_), " has the dtype ", format_tensor_name(text),
           ", expected F32, F64, BF16, I32, I64 or U8");
    entry_.dtype = *known;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::tensor || field_ == "dtype") unexpected("a list");
    level_ = Level::list;
    list_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::tensor;
    if (field_ == "shape") {
      for (const uint64_t size : list_) entry_.shape.append(static_cast<int64_t>(size));
    } else {
      if (list_.size() != 2) fail("tensor ", format_tensor_name(name_), ": expected two data offsets");
      entry_.begin = list_[0];
      entry_.end = list_[1];
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (level_ != Level::list) unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX))
      fail("tensor ", format_tensor_name(name_), ": ", value, " is too large");
    if (list_.size() >= Shape::kMaxRank)
      fail("tensor ", format_tensor_name(name_), " has more than ", Shape::kMaxRank, " dimensions");
    list_.push_back(value);
    return true;
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(int64_t) override { unexpected("a negative number"); }
  bool number_float(double, const std::string&) override { unexpected("a fractional or huge number"); }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail("the header is not valid JSON at byte ", position);
  }

 private:
  enum class Level { outside, top, metadata, tensor, list };

  [[noreturn]] void unexpected(const char* what) const {
    fail("the header holds ", what, " where none is expected",
         name_.empty() ? "" : " at " + format_tensor_name(name_));
  }

  SafetensorsHeader& header_;
  Level level_ = Level::outside;
  std::string name_, field_;
  SafetensorsEntry entry_;
  std::vector<uint64_t> list_;
  std::set<std::string> names_, fields_;
};

// Returns the size of a tensor in bytes, or std::nullopt if the size is greater than INT64_MAX. The overflow
// check treats each dimension of size 0 as size 1, so that the strides of an empty tensor cannot overflow.
std::optional<uint64_t> compute_byte_count(const SafetensorsEntry& entry) {
  uint64_t bound = static_cast<uint64_t>(size_of(entry.dtype));
  for (const int64_t size : entry.shape)
    if (__builtin_mul_overflow(bound, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &bound) ||
        bound > static_cast<uint64_t>(INT64_MAX))
      return std::nullopt;
  const bool empty = std::count(entry.shape.begin(), entry.shape.end(), 0) > 0;
  return empty ? 0 : bound;
}

// Throws CheckpointError unless each byte of the data section belongs to exactly one tensor.
void check_layout(const std::map<std::string, SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::vector<std::pair<const std::string, SafetensorsEntry> const*> in_order;
  for (const auto& item : entries) in_order.push_back(&item);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  uint64_t expected = 0;
  for (const auto* item : in_order) {
    const auto& [name, entry] = *item;
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data_bytes)
      fail("tensor ", format_tensor_name(name), " lies at bytes ", entry.begin, " to ", entry.end,
           ", expected it to start at ", expected, " and to end within the ", data_bytes, " bytes of data");
    const auto bytes = compute_byte_count(entry);
    if (!bytes)
      fail("tensor ", format_tensor_name(name), ": the shape ", entry.shape.to_string(), " overflows");
    if (*bytes != entry.end - entry.begin)
      fail("tensor ", format_tensor_name(name), " of shape ", entry.shape.to_string(), " and type ",
           get_safetensors_dtype_name(entry.dtype), " needs ", *bytes, " bytes, its offsets give ",
           entry.end - entry.begin);
    expected = entry.end;
  }
  if (expected != data_bytes)
    fail("the header describes ", expected, " bytes of data, the file holds ", data_bytes);
}

}  // namespace

const char* get_safetensors_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "F64";
    case DType::bfloat16:
      return "BF16";
    case DType::int32:
      return "I32";
    case DType::int64:
      return "I64";
    case DType::uint8:
      return "U8";
    case DType::float32:
      break;
  }
  return "F32";
}

SafetensorsHeader parse_safetensors_header(const std::string& json, uint64_t data_bytes) {
  if (json.empty() || json[0] != '{') fail("the header does not start with \"{\"");
  SafetensorsHeader header;
  HeaderHandler handler(header);
  nlohmann::json::sax_parse(json, &handler);
  check_layout(header.entries, data_bytes);
  return header;
}

}  // namespace tapeformer
