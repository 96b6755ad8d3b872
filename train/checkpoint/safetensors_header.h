// Parser of the JSON header of a safetensors file. Internal to train/checkpoint/safetensors.cpp and its
// tests.
#pragma once

#include <map>
#include <string>

#include "train/checkpoint/safetensors.h"

namespace tapeformer {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsFile::Entry> entries;
  std::map<std::string, std::string> metadata;
};

// Parses and checks a header. `data_bytes` is the size of the data section. Throws CheckpointError without
// the name of the file.
SafetensorsHeader parse_safetensors_header(const std::string& json, uint64_t data_bytes);

// Returns the name of a dtype in safetensors files, such as "F32".
const char* safetensors_dtype(DType dtype);

}  // namespace tapeformer
