// Gather and scatter along the middle of (outer, size, inner) by an index (outer, count, inner) of positions.
// On the CPU, positions are always in range. On a device, the host cannot check them without waiting, so
// gather returns NaN for a position out of range. Each scatter kernel states its own rule.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

struct IndexShape {
  int64_t outer, size, count, inner;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Gathers y (outer, count, inner) from x (outer, size, inner).
    template <class T>
    void gather_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y);
    // Adds x (outer, count, inner) to y (outer, size, inner) at the index, in the order of `count`. A
    // position out of range adds NaN at position 0.
    template <class T>
    void scatter_add_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y);
    // Copies rows of table (rows, dim) to y (count, dim).
    template <class T> void gather_rows(Backend, const T* table, int64_t rows, const int64_t* index, T* y,
                                        int64_t count, int64_t dim);
    // Adds g (count, dim) to the rows of table (rows, dim) at the index. The order of the sums depends only
    // on the index. count is below 2³¹. Positions out of range are skipped.
    template <class T> void scatter_add_rows(Backend, const T* g, const int64_t* index, T* table,
                                             int64_t rows, int64_t count, int64_t dim);

    // Writes out (batch, value_dim + position_dim): table[tokens[b]] followed by positions[position], plus
    // added[position] if `added` is not null. On a device, the position is a GraphStep.
    template <class T, class Index>
    void embed_rows(Backend, const T* table, int64_t rows, const Index* tokens, const T* positions,
                    const T* added, int64_t position, T* out, int64_t batch, int64_t value_dim,
                    int64_t position_dim);

)

}  // namespace tapeformer
