// The types of metadata and of tensors in GGUF files. Tensors have numbers, or blocks of quantised numbers.
//
// A block has a float16 scale d, and most types have a float16 minimum m or dmin. A value is d · q, d · (q −
// c) with a constant c, or d · q + m, where q is an integer of 4 to 8 bits. The blocks of the types with a K
// have 256 values in groups of 16 or 32, and a group has own scales, which are multiples of d and dmin.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tapeformer {

// A value of the metadata. Booleans in lists are 0 or 1.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>>;

struct GgufType {
  uint32_t number;  // in the file
  const char* name;
  int64_t block_values, block_bytes;
  // Converts `count` blocks to float32. The conversion is exact up to one rounding, for types with a minimum.
  void (*widen)(const uint8_t* blocks, int64_t count, float* values);
};

// Returns the type with this number, or null if the type is unknown or cannot be converted.
const GgufType* find_gguf_type(uint32_t number);

}  // namespace tapeformer
