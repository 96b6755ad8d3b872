// The JSON header of a safetensors file, and its parser.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace tapeformer {

// The type and the location of a tensor in a file.
struct SafetensorsEntry {
  DType dtype = DType::float32;  // of the tensor that is read
  Shape shape;
  uint64_t begin = 0, end = 0;  // range [begin, end) of bytes in the data section
  bool is_float16 = false;      // whether the file has float16 elements, which are read as float32
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Parses and checks a header. `data_bytes` is the size of the data section. Throws CheckpointError if the
// header is invalid; the message does not name the file.
SafetensorsHeader parse_safetensors_header(const std::string& json, uint64_t data_bytes);

// Returns the size of an element in the file in bytes.
int64_t get_stored_element_bytes(const SafetensorsEntry& entry);

// Returns the name of a dtype in safetensors files, such as "F32".
const char* get_safetensors_dtype_name(DType dtype);

}  // namespace tapeformer
