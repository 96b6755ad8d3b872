// The header of a GGUF file. Internal to train/pretrained.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/base/shape.h"
#include "core/system/files.h"
#include "train/pretrained/gguf_types.h"

namespace tapeformer {

struct GgufTensor {
  const GgufType* type = nullptr;
  Shape shape;
  uint64_t offset = 0, bytes = 0;  // the offset is from the start of the data section
};

struct GgufHeader {
  std::map<std::string, GgufValue> metadata;
  std::map<std::string, GgufTensor> tensors;
  uint64_t data_begin = 0;  // offset of the data section
};

// Reads and checks the header. Throws CheckpointError if it is invalid, whose message does not name the file,
// and FileError if the file cannot be read.
GgufHeader read_gguf_header(const File& file);

}  // namespace tapeformer
