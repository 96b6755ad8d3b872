// Reader of matrices in binary Kaldi archives (.ark).
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// Returns the matrix at a byte offset of an archive, as float32 (rows, columns). Supports the types FM
// (float32) and DM (float64), and the compressed types CM, CM2 and CM3. An 8-bit code of CM is interpolated
// between percentiles of the column of the matrix. A 16-bit code of CM2 and an 8-bit code of CM3 are
// interpolated between the minimum and the maximum of the matrix. If the matrix cannot be read, throws
// DataError with the file, the offset and the reason.
Tensor read_ark_matrix(const std::filesystem::path& path, int64_t offset);

}  // namespace tapeformer
