// Reader of matrices in binary Kaldi archives (.ark).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace tapeformer {

// A range of rows and columns of a matrix. Indices are counted from 0, and the range includes its last row
// and column. Without a last row or column, the range extends to the end of the matrix.
struct MatrixRange {
  int64_t first_row = 0, first_column = 0;
  std::optional<int64_t> last_row, last_column;

  bool operator==(const MatrixRange&) const = default;
  // Returns the range in the form of parse_matrix_range().
  std::string to_string() const;
};

// Parses a range of Kaldi, such as "0:10", ":,2:5" or "0:10,2:". Returns std::nullopt if the text is invalid.
std::optional<MatrixRange> parse_matrix_range(const std::string& text);

// Returns the matrix at a byte offset of an archive, as float32 (rows, columns). Supports the types FM
// (float32) and DM (float64), and the compressed types CM, CM2 and CM3. An 8-bit code of CM is interpolated
// between percentiles of the column of the matrix. A 16-bit code of CM2 and an 8-bit code of CM3 are
// interpolated between the minimum and the maximum of the matrix. If the matrix cannot be read, throws
// DataError with the file, the offset and the reason.
//
// If `range` is set, returns a part of the matrix. As in Kaldi, the last row of the range can be up to 3 rows
// after the end of the matrix. The range then ends with the matrix, and the function sets *cut_rows, if the
// pointer is not null, to the number of missing rows. Throws DataError if the range is outside of the matrix.
Tensor read_ark_matrix(const std::filesystem::path& path, int64_t offset, const MatrixRange& range = {},
                       int64_t* cut_rows = nullptr);

}  // namespace tapeformer
