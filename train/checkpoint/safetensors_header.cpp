#include "train/checkpoint/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "core/base/errors.h"
#include "core/system/printable.h"

namespace tapeformer {
namespace {

using HeaderJson = nlohmann::json;

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

// Returns the elements of a list, for example of a shape.
std::vector<uint64_t> read_sizes(const std::string& tensor, const HeaderJson& list) {
  std::vector<uint64_t> sizes;
  if (!list.is_array())
    fail("tensor ", format_tensor_name(tensor), ": expected a list, found ", list.type_name());
  for (const HeaderJson& size : list) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      fail("tensor ", format_tensor_name(tensor), ": expected integers from 0 to ", INT64_MAX, ", found ",
           size.is_number() ? size.dump() : size.type_name());
    sizes.push_back(size.get<uint64_t>());
  }
  return sizes;
}

SafetensorsEntry read_entry(const std::string& name, const HeaderJson& fields) {
  for (const auto& field : fields.items())
    if (field.key() != "dtype" && field.key() != "shape" && field.key() != "data_offsets")
      fail("tensor ", format_tensor_name(name), " has an unknown field ", format_tensor_name(field.key()));
  if (fields.size() != 3) fail("tensor ", format_tensor_name(name), " lacks dtype, shape or data_offsets");
  const HeaderJson& type = fields["dtype"];
  const bool is_float16 = type == "F16";
  const DType* const dtype = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](DType known) {
    return type == (is_float16 ? "F16" : get_safetensors_dtype_name(known)) ||
           (known == DType::uint8 && type == "BOOL");
  });
  if (dtype == std::end(kDTypes))
    fail("tensor ", format_tensor_name(name), " has the dtype ",
         format_tensor_name(type.is_string() ? type.get<std::string>() : type.type_name()),
         ", expected F32, F64, F16, BF16, I32, I64, U8 or BOOL");
  const std::vector<uint64_t> offsets = read_sizes(name, fields["data_offsets"]);
  if (offsets.size() != 2) fail("tensor ", format_tensor_name(name), ": expected two data offsets");
  SafetensorsEntry entry{*dtype, {}, offsets[0], offsets[1], is_float16};
  for (const uint64_t size : read_sizes(name, fields["shape"]))
    entry.shape.append(static_cast<int64_t>(size));
  return entry;
}

std::map<std::string, std::string> read_metadata(const HeaderJson& fields) {
  std::map<std::string, std::string> metadata;
  for (const auto& field : fields.items()) {
    if (!field.value().is_string())
      fail("metadata ", format_tensor_name(field.key()), ": expected a string, found ",
           field.value().type_name());
    metadata[field.key()] = field.value().get<std::string>();
  }
  return metadata;
}

// Reads the entries of a header. nlohmann::json calls `keep` for each part of the text. Each entry is read
// and discarded at its end, and its size is limited, so that a header cannot use much more memory than its
// text.
SafetensorsHeader read_entries(const std::string& text) {
  using Event = HeaderJson::parse_event_t;
  SafetensorsHeader header;
  std::string name;                     // of the current entry
  std::set<std::string> names, fields;  // of all entries, and in the current entry
  int list_size = 0;
  const auto keep = [&](int depth, Event event, const HeaderJson& value) {
    if (event == Event::key) {
      std::set<std::string>& known = depth == 1 ? names : fields;
      if (depth == 1) name = value.get<std::string>();
      if (!known.insert(value.get<std::string>()).second)
        fail("two entries named ", format_tensor_name(value.get<std::string>()));
      if (known.size() > kMaxEntries) fail("more than ", kMaxEntries, " entries");
    } else if (event == Event::object_start) {
      fields.clear();
      if (depth > 1) fail(format_tensor_name(name), " contains an object where none is expected");
    } else if (event == Event::object_end && depth == 1) {
      if (name == "__metadata__")
        header.metadata = read_metadata(value);
      else
        header.entries.emplace(name, read_entry(name, value));
      return false;
    } else if (event == Event::array_start) {
      list_size = 0;
      if (depth != 2) fail(format_tensor_name(name), " contains a list where none is expected");
    } else if (event == Event::value) {
      if (depth == 1) fail(format_tensor_name(name), ": expected an object, found ", value.type_name());
      if (depth == 3 && ++list_size > Shape::kMaxRank)
        fail("tensor ", format_tensor_name(name), " has more than ", Shape::kMaxRank, " dimensions");
    }
    return true;
  };
  try {
    [[maybe_unused]] const HeaderJson empty = HeaderJson::parse(text, keep);
  } catch (const HeaderJson::parse_error& error) {
    fail("the header is not valid JSON at byte ", error.byte);
  } catch (const HeaderJson::exception&) {
    fail(format_tensor_name(name), ": contains a number that is too large");
  }
  return header;
}

// Returns the size of a tensor in bytes, or std::nullopt if the size is greater than INT64_MAX. The overflow
// check treats each dimension of size 0 as size 1, so that the strides of an empty tensor cannot overflow.
std::optional<uint64_t> compute_byte_count(const SafetensorsEntry& entry) {
  auto bound = static_cast<uint64_t>(get_stored_element_bytes(entry));
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
           entry.is_float16 ? "F16" : get_safetensors_dtype_name(entry.dtype), " needs ", *bytes,
           " bytes, its offsets give ", entry.end - entry.begin);
    expected = entry.end;
  }
  if (expected != data_bytes)
    fail("the header describes ", expected, " bytes of data, the file holds ", data_bytes);
}

}  // namespace

int64_t get_stored_element_bytes(const SafetensorsEntry& entry) {
  return entry.is_float16 ? int64_t{sizeof(uint16_t)} : size_of(entry.dtype);
}

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
  SafetensorsHeader header = read_entries(json);
  check_layout(header.entries, data_bytes);
  return header;
}

}  // namespace tapeformer
