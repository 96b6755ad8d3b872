#include "train/pretrained/gguf_file.h"

#include "core/base/errors.h"
#include "train/pretrained/gguf_header.h"

namespace tapeformer {
namespace {

File open_checked(const std::string& path) try {
  return open_regular_file(path);
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

const char* describe_type(const GgufValue& value) {
  constexpr const char* kNames[] = {"a boolean",          "an integer",        "a number",         "a string",
                                    "a list of integers", "a list of numbers", "a list of strings"};
  return kNames[value.index()];
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : file_(open_checked(path)) {
  try {
    GgufHeader header = read_gguf_header(file_);
    metadata_ = std::move(header.metadata);
    for (const auto& [name, tensor] : header.tensors) {
      entries_[name] = {tensor.shape, tensor.type->name};
      locations_[name] = {tensor.type, header.data_begin + tensor.offset, tensor.bytes};
    }
  } catch (const CheckpointError& error) {
    throw CheckpointError(path + ": no valid GGUF file: " + error.what());
  } catch (const FileError& error) {
    throw CheckpointError(error.what());
  }
}

Tensor GgufFile::read(const std::string& name) const try {
  const auto found = locations_.find(name);
  if (found == locations_.end()) throw CheckpointError(path() + ": no tensor named " + name);
  const Location& location = found->second;
  std::vector<uint8_t> bytes(location.bytes);
  file_.read_at(bytes.data(), bytes.size(), location.offset);
  Tensor tensor = Tensor::empty(entries_.at(name).shape, DType::float32);
  location.type->widen(bytes.data(), tensor.numel() / location.type->block_values, tensor.data<float>());
  return tensor;
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

template <class T>
T GgufFile::get(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) throw CheckpointError(path() + ": the key " + key + " is missing");
  if constexpr (std::is_same_v<T, double>)
    if (const int64_t* const integer = std::get_if<int64_t>(&found->second))
      return static_cast<double>(*integer);
  const T* const value = std::get_if<T>(&found->second);
  if (!value)
    throw CheckpointError(concat_text(path(), ": ", key, ": expected ", describe_type(T()), ", got ",
                                      describe_type(found->second)));
  return *value;
}

template bool GgufFile::get(const std::string&) const;
template int64_t GgufFile::get(const std::string&) const;
template double GgufFile::get(const std::string&) const;
template std::string GgufFile::get(const std::string&) const;
template std::vector<int64_t> GgufFile::get(const std::string&) const;
template std::vector<double> GgufFile::get(const std::string&) const;
template std::vector<std::string> GgufFile::get(const std::string&) const;

}  // namespace tapeformer
