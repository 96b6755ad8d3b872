// Reader of the IDX format of MNIST, plain or compressed with gzip. An IDX file contains two zero bytes, a
// type byte, the number of dimensions, each size as a big-endian 32-bit number, and the values. Only the type
// 0x08, unsigned bytes, is supported. All functions are thread-safe.
//
// Functions throw DataError with the path if the magic number is wrong, or if the sizes in the header do not
// match the number of bytes in the file. Wrong sizes do not cause large memory allocations.
#pragma once

#include <span>
#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Returns the sizes of the `rank` dimensions in the header of a file. Throws DataError if the file has a
// different number of dimensions.
Shape read_idx_shape(const std::filesystem::path& path, int rank);

// Returns the values of a file with `rank` dimensions as a uint8 tensor.
Tensor read_idx(const std::filesystem::path& path, int rank);

// Returns the values of an IDX file as a uint8 tensor. `bytes` contains the unpacked file. `name` is the name
// of the file in error messages.
Tensor parse_idx(std::span<const uint8_t> bytes, int rank, const std::string& name);

}  // namespace tapeformer
