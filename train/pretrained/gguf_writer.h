// A writer of GGUF files, version 3.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/system/files.h"
#include "core/tensor.h"
#include "train/pretrained/gguf_types.h"

namespace tapeformer {

// The types in which tensors can be written.
enum class GgufWriteType { float32, float16, bfloat16, q8_0 };

// A tensor that the writer asks for when it writes its values.
struct GgufOutput {
  std::string name;
  Shape shape;
  GgufWriteType type = GgufWriteType::float32;
  std::function<Tensor()> read;  // float32 on the CPU, contiguous
};

// Writes and syncs a file. Integers of the metadata become uint32 if they fit, and otherwise uint64; integers
// of lists become int32, and numbers float32. A row of a tensor of the type q8_0 must have a multiple of 32
// values. Blocks of q8_0 are those of the package gguf: d = max |x| / 127, and q is the nearest integer to
// x / d. Throws FileError if the file cannot be written.
void write_gguf(File& file, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                const std::vector<GgufOutput>& tensors);

}  // namespace tapeformer
