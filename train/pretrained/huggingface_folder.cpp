#include "train/pretrained/huggingface_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/system/printable.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kWeights[] = "model.safetensors", kIndex[] = "model.safetensors.index.json";
constexpr size_t kMaxConfigBytes = size_t{1} << 18;
constexpr size_t kMaxIndexBytes = size_t{1} << 24;
constexpr size_t kMaxFiles = 512;  // each is open until the folder is closed

std::string read_small_file(const std::string& path, size_t max_bytes) try {
  return read_file(path, max_bytes);
} catch (const FileError& error) {
  throw CheckpointError(error.what());
}

// Infinity is no number of JSON, but Python writes it. Returns the text with the object that later versions
// of transformers write in its place.
std::string replace_infinity(const std::string& text) {
  const std::string infinity = "Infinity", object = R"({"__float__": "Infinity"})";
  std::string result;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!in_string && text.compare(at, infinity.size(), infinity) == 0) {
      result += object;
      at += infinity.size() - 1;
      continue;
    }
    if (in_string && text[at] == '\\' && at + 1 < text.size()) result += text[at++];
    if (text[at] == '"') in_string = !in_string;
    result += text[at];
  }
  return result;
}

// Throws CheckpointError unless the name is that of a file in the folder of the index.
void check_file_name(const std::string& name, const std::string& index) {
  const bool is_plain = !name.empty() && name != "." && name != ".." && name.size() < 256 &&
                        name.find_first_of(std::string("/\0", 2)) == std::string::npos;
  if (!is_plain)
    throw CheckpointError(index + ": expected the name of a file in the same folder, got \"" +
                          escape_line(name.substr(0, 100)) + "\"");
}

// Returns the names of the tensors in each file of an index.
std::map<std::string, std::vector<std::string>> parse_index(const std::string& text,
                                                            const std::string& path) {
  std::map<std::string, std::vector<std::string>> files;
  const auto check_depth = [&](int depth, Json::parse_event_t, const Json&) {
    if (depth > 4) throw CheckpointError(path + ": is nested too deeply");
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, check_depth);
  } catch (const Json::exception&) {
    throw CheckpointError(path + ": is not valid JSON");
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw CheckpointError(path + ": expected an object \"weight_map\" with the file of each tensor");
  for (const auto& item : json["weight_map"].items()) {
    if (!item.value().is_string())
      throw CheckpointError(path + ": weight_map: expected the file of \"" + escape_line(item.key()) + "\"");
    const auto file = item.value().get<std::string>();
    check_file_name(file, path);
    files[file].push_back(item.key());
    if (files.size() > kMaxFiles)
      throw CheckpointError(concat_text(path, ": lists more than ", kMaxFiles, " files"));
  }
  if (files.empty()) throw CheckpointError(path + ": lists no tensors");
  return files;
}

}  // namespace

HuggingFaceFolder::HuggingFaceFolder(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) throw CheckpointError(path + ": is not a folder");
  if (!has_file("config.json")) throw CheckpointError(path + ": has no config.json");
  if (has_file(kWeights))
    add_weights(kWeights, nullptr);
  else if (has_file(kIndex))
    read_index();
  else
    throw CheckpointError(
        concat_text(path, ": has no ", kWeights, " and no ", kIndex,
                    has_file("pytorch_model.bin") || has_file("pytorch_model.bin.index.json")
                        ? "; save the model as safetensors, for example by save_pretrained() of transformers"
                        : ""));
}

bool HuggingFaceFolder::has_file(const std::string& file_name) const {
  std::error_code ignored;
  return fs::exists(file_path(file_name), ignored);
}

JsonObjectReader HuggingFaceFolder::read_json(const std::string& file_name) const {
  const std::string file = file_path(file_name);
  return {replace_infinity(read_small_file(file, kMaxConfigBytes)), file + ": "};
}

void HuggingFaceFolder::read_index() {
  const std::string index = file_path(kIndex);
  for (const auto& [file, names] : parse_index(read_small_file(index, kMaxIndexBytes), index))
    add_weights(file, &names);
}

void HuggingFaceFolder::add_weights(const std::string& file_name, const std::vector<std::string>* names) {
  files_.push_back(std::make_unique<const SafetensorsFile>(file_path(file_name)));
  const SafetensorsFile& file = *files_.back();
  const auto add = [&](const std::string& name, const SafetensorsEntry& entry) {
    entries_[name] = {entry.shape, entry.is_float16 ? "F16" : get_safetensors_dtype_name(entry.dtype)};
    file_of_[name] = &file;
  };
  if (!names) {
    for (const auto& [name, entry] : file.entries()) add(name, entry);
    return;
  }
  for (const std::string& name : *names) {
    const auto found = file.entries().find(name);
    if (found == file.entries().end())
      throw CheckpointError(file.path() + ": has no tensor \"" + escape_line(name) + "\", which " + kIndex +
                            " expects in this file");
    add(name, found->second);
  }
  for (const auto& item : file.entries())
    if (!entries_.contains(item.first) || file_of_.at(item.first) != &file)
      throw CheckpointError(file.path() + ": the tensor \"" + escape_line(item.first) + "\" is not in " +
                            kIndex);
}

Tensor HuggingFaceFolder::read(const std::string& name) const {
  const auto file = file_of_.find(name);
  if (file == file_of_.end()) throw CheckpointError(path_ + ": no tensor named " + name);
  const Tensor tensor = file->second->read(name);
  return is_floating(tensor.dtype()) ? tensor.to(DType::float32) : tensor;
}

}  // namespace tapeformer
