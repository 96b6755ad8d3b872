// Matrix products with the tile instructions of AMX. All functions run in the calling thread and require that
// is_available() is true. A thread with a TileRegisters object must not call multiply() or
// multiply_transposed(), because both functions configure the tile registers. amx_tiles.h documents the type
// parameter E and the rounding of products.
//
// A packed matrix consists of panels of kPanelColumns columns. In a panel, each group of kTileDepth rows is
// stored as two tiles with 16 columns each. If E is float, the two tiles with the first parts of the elements
// are followed by two tiles with the second parts and two tiles with the third parts. The matrix is padded
// with zeros to whole tiles.
#pragma once

#include <cstdint>

#include "ops/cpu/amx_tiles.h"

namespace tapeformer::cpu::amx {

template <class E>
int64_t compute_packed_bytes(int64_t depth, int64_t columns);
// Packs columns [begin, end) of the matrix b into `packed`, which is the start of the packed matrix. b is
// stored as (depth, columns), or as (columns, depth) if `transposed` is true. If E is BFloat16, the elements
// of b are rounded. `begin` is a multiple of kPanelColumns, and `end` is a multiple of kPanelColumns or
// `columns`.
template <class E>
void pack(int64_t depth, int64_t columns, const float* b, bool transposed, int64_t begin, int64_t end,
          BFloat16* packed);
// Computes out (rows, columns) = a (rows, depth) b, where `packed` is the packed matrix b. `depth` is at
// least 1. `out_stride` is the row stride of `out` in elements.
template <class E>
void multiply(int64_t rows, int64_t depth, int64_t columns, const E* a, const BFloat16* packed, float* out,
              int64_t out_stride);

// Computes out (m, n) = aᵀ b or, if `add` is true, out += aᵀ b, for contiguous a (rows, m), b (rows, n) and
// out. `rows` is at least 1.
template <class E>
void multiply_transposed(int64_t rows, int64_t m, int64_t n, const E* a, const E* b, bool add, float* out);

}  // namespace tapeformer::cpu::amx
