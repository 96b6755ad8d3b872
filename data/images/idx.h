// The IDX format of the MNIST family: two zero bytes, a type byte (0x08, unsigned bytes: the only one read
// here), the number of dimensions, each size as a big-endian 32-bit number, then the values. Plain or packed
// with gzip. No state; any thread.
//
// Errors: DataError names the file and what was expected, for a wrong magic number and for sizes that do not
// agree with the bytes that are there. Memory is only taken for bytes that are there.
#pragma once

#include <span>
#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// The sizes that the header of a file with `rank` dimensions announces; the payload is not read.
Shape read_idx_shape(const std::filesystem::path& path, int rank);

// The whole file as a uint8 tensor of `rank` dimensions.
Tensor read_idx(const std::filesystem::path& path, int rank);

// The same from memory; `name` is what errors call it.
Tensor parse_idx(std::span<const uint8_t> bytes, int rank, const std::string& name);

}  // namespace tapeformer
