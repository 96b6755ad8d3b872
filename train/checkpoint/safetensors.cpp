#include "train/checkpoint/safetensors.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "core/base/errors.h"
#include "core/base/float16.h"
#include "train/checkpoint/safetensors_header.h"

namespace tapeformer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // header limit of the reference implementation
constexpr size_t kAlignment = 8;
constexpr size_t kMaxNames = 4;  // maximum number of names in each list of an error

// Returns the tensors in descending order of their element sizes, so that each tensor is aligned to its
// element size. The reference implementation uses the same order.
std::vector<std::pair<std::string, Tensor>> sort_in_file_order(const std::map<std::string, Tensor>& tensors) {
  std::vector<std::pair<std::string, Tensor>> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second.dtype()) > size_of(b.second.dtype());
  });
  return order;
}

std::string list_text(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = concat_text("\n  ", names.size(), " ", what, ":");
  for (size_t i = 0; i < std::min(names.size(), kMaxNames); ++i)
    text += concat_text(i ? ", " : " ", names[i]);
  if (names.size() > kMaxNames) text += concat_text(" and ", names.size() - kMaxNames, " more");
  return text;
}

std::string describe_tensor(DType dtype, const Shape& shape) {
  return concat_text(shape.to_string(), " ", name_of(dtype));
}

File open_checked(const std::string& path) {
  try {
    return open_regular_file(path);
  } catch (const FileError& error) {
    throw CheckpointError(error.what());
  }
}

// Throws CheckpointError if the checksum of a file differs from the expected checksum.
void require_equal(const Checksum& found, const Checksum& expected, const std::string& path) {
  if (found == expected) return;
  throw CheckpointError(concat_text(path, ": is damaged: expected ", expected.bytes, " bytes with CRC-32 ",
                                    format_crc32(expected.crc32), ", found ", found.bytes,
                                    " bytes with CRC-32 ", format_crc32(found.crc32)));
}

}  // namespace

Checksum write_safetensors(File& file, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  const auto order = sort_in_file_order(tensors);
  int64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    header[name] = {{"dtype", get_safetensors_dtype_name(tensor.dtype())},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string json = header.dump();
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');

  Checksum checksum;
  const auto write = [&](const void* data, size_t size) {
    checksum.append(data, size);
    file.write(data, size);
  };
  const uint64_t length = json.size();
  write(&length, sizeof length);
  write(json.data(), json.size());
  for (const auto& [name, tensor] : order) {
    const Tensor here = tensor.alias().to(kCpu), plain = here.is_contiguous() ? here : here.clone();
    write(plain.raw_data(), static_cast<size_t>(plain.bytes()));
  }
  file.sync();
  return checksum;
}

Checksum write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                           const std::map<std::string, std::string>& metadata) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  return write_safetensors(file, tensors, metadata);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(open_checked(path)) {
  try {
    const uint64_t size = file_.size();
    if (size < sizeof(uint64_t))
      throw CheckpointError(concat_text("expected at least 8 bytes, the file has ", size));
    uint64_t length = 0;
    file_.read_at(&length, sizeof length, 0);
    if (length > kMaxHeaderBytes || length > size - sizeof length)
      throw CheckpointError(concat_text("expected a header of ", length, " bytes, the file has ", size,
                                        " bytes and the limit is ", kMaxHeaderBytes));
    std::string json(length, '\0');
    file_.read_at(json.data(), length, sizeof length);
    header_checksum_.append(&length, sizeof length);
    header_checksum_.append(json.data(), json.size());
    data_begin_ = sizeof length + length;
    auto header = parse_safetensors_header(json, size - data_begin_);
    entries_ = std::move(header.entries);
    metadata_ = std::move(header.metadata);
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": no valid safetensors file: " + error.what());
  } catch (const FileError& error) {
    throw CheckpointError(error.what());
  }
}

Tensor SafetensorsFile::read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw CheckpointError(path() + ": no tensor named " + name);
  Checksum ignored;
  return read(found->second, ignored);
}

Tensor SafetensorsFile::read(const Entry& entry, Checksum& checksum) const try {
  Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
  if (entry.is_float16) {
    std::vector<uint16_t> halves(static_cast<size_t>(tensor.numel()));
    checksum.append(
        read_with_checksum(file_, halves.data(), entry.end - entry.begin, data_begin_ + entry.begin));
    std::transform(halves.begin(), halves.end(), tensor.data<float>(), widen_float16);
    return tensor;
  }
  checksum.append(
      read_with_checksum(file_, tensor.raw_data(), entry.end - entry.begin, data_begin_ + entry.begin));
  return tensor;
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

void SafetensorsFile::check_tensors(const std::vector<std::pair<std::string, Tensor>>& expected) const {
  std::vector<std::string> missing, extra, mismatched;
  std::set<std::string> names;
  for (const auto& [name, tensor] : expected) {
    names.insert(name);
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
      missing.push_back(name);
      continue;
    }
    const Entry& entry = found->second;
    const bool convertible = is_floating(entry.dtype) && is_floating(tensor.dtype());
    if (!(entry.shape == tensor.shape()) || (entry.dtype != tensor.dtype() && !convertible))
      mismatched.push_back(concat_text(name, " (expected ", describe_tensor(tensor.dtype(), tensor.shape()),
                                       ", found ", describe_tensor(entry.dtype, entry.shape), ")"));
  }
  for (const auto& entry : entries_)
    if (!names.count(entry.first)) extra.push_back(entry.first);
  const std::string problems = list_text("missing", missing) + list_text("not expected", extra) +
                               list_text("of another shape or dtype", mismatched);
  if (!problems.empty()) throw CheckpointError(path() + ": the tensors do not match:" + problems);
}

std::vector<std::pair<std::string, const SafetensorsEntry*>> SafetensorsFile::list_in_file_order() const {
  std::vector<std::pair<std::string, const Entry*>> list;
  for (const auto& [name, entry] : entries_) list.emplace_back(name, &entry);
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->begin, a.second->end) < std::tie(b.second->begin, b.second->end);
  });
  return list;
}

void SafetensorsFile::verify(const Checksum& expected) const {
  Checksum found = header_checksum_;
  for (const auto& [name, entry] : list_in_file_order()) read(*entry, found);
  require_equal(found, expected, path());
}

void SafetensorsFile::load_into(const std::vector<std::pair<std::string, Tensor>>& expected,
                                const std::optional<Checksum>& checksum) const {
  try {
    check_tensors(expected);
  } catch (const CheckpointError&) {
    if (checksum) verify(*checksum);  // throws a more specific error if the file is damaged
    throw;
  }
  const std::map<std::string, Tensor> targets(expected.begin(), expected.end());
  const auto in_file_order = list_in_file_order();
  // The whole file is read before the first tensor is overwritten, so that a damaged file changes no tensor.
  // It is read twice, so that only one tensor of the file is in memory at a time.
  Checksum found = header_checksum_;
  for (const auto& [name, entry] : in_file_order) read(*entry, found);
  if (checksum) require_equal(found, *checksum, path());
  Checksum ignored;
  for (const auto& [name, entry] : in_file_order) targets.at(name).copy_from(read(*entry, ignored));
}

}  // namespace tapeformer
