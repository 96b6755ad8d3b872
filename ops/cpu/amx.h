// Products of bfloat16 matrices with the tile instructions of AMX. All functions run in the calling thread.
// Sums are float32. Subnormal operands and results become zero. All functions except is_available() require
// that is_available() is true.
//
// A packed matrix consists of panels of kPanelColumns columns. In a panel, each group of kTileDepth rows is
// stored as two tiles with 16 columns each. The matrix is padded with zeros to whole tiles.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tapeformer::cpu::amx {

#if defined(__x86_64__)
inline constexpr bool kIsBuilt = true;
#else
inline constexpr bool kIsBuilt = false;
#endif

inline constexpr int64_t kTileDepth = 32;     // rows of a tile of a packed matrix
inline constexpr int64_t kPanelColumns = 32;  // columns of a panel, which is two tiles wide

// Returns whether the processor has AMX for bfloat16 and the operating system allows this process to use it.
// The first call requests permission from the operating system.
bool is_available();

// Returns the size of a packed matrix in bytes.
int64_t compute_packed_bytes(int64_t depth, int64_t columns);
// Packs columns [begin, end) of the matrix b into `packed`, which is the start of the packed matrix. b is
// stored as (depth, columns), or as (columns, depth) if `transposed` is true. The elements of b are rounded
// to bfloat16. `begin` is a multiple of kPanelColumns, and `end` is a multiple of kPanelColumns or `columns`.
void pack(int64_t depth, int64_t columns, const float* b, bool transposed, int64_t begin, int64_t end,
          BFloat16* packed);
// Computes out (rows, columns) = a (rows, depth) b, where `packed` is the packed matrix b. `out_stride` is
// the row stride of `out` in elements.
void multiply(int64_t rows, int64_t depth, int64_t columns, const BFloat16* a, const BFloat16* packed,
              float* out, int64_t out_stride);

// Computes out (m, n) += aᵀ b for contiguous a (rows, m), b (rows, n) and out.
void add_transposed_product(int64_t rows, int64_t m, int64_t n, const BFloat16* a, const BFloat16* b,
                            float* out);

}  // namespace tapeformer::cpu::amx
