// Matrices in binary archives of Kaldi (.ark), as feats.scp names them.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// The matrix at an offset, as float32 (rows, columns): FM (float32), DM (float64), and the compressed CM (8
// bits between percentiles of the column), CM2 (16 bits) and CM3 (8 bits, both between the least and the
// greatest value of the matrix). Throws DataError, naming file, offset and fault.
Tensor read_ark_matrix(const std::filesystem::path& path, int64_t offset);

}  // namespace tapeformer
