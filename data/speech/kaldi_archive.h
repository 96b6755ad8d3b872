// Reader of matrices in binary Kaldi archives (.ark).
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// Returns the matrix at a byte offset of an archive, as float32 (rows, columns). Supports the types FM
// (float32) and DM (float64), and the compressed types CM, CM2 and CM3. CM encodes a value in 8 bits, by
// interpolation between percentiles of the column. CM2 uses 16 bits and CM3 uses 8 bits, for a value between
// the minimum and the maximum of the matrix. If the matrix cannot be read, throws DataError with the file,
// the offset and the reason.
Tensor read_ark_matrix(const std::filesystem::path& path, int64_t offset);

}  // namespace tapeformer
