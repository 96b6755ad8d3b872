// Gather and scatter along the middle dimension of (outer, size, inner) by an index (outer, count, inner) of
// positions. On the CPU, positions must be in range. On CUDA, positions cannot be checked without
// synchronisation; gathering from a position out of range gives NaN.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

struct IndexShape {
  int64_t outer, size, count, inner;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Gathers y (outer, count, inner) from x (outer, size, inner) at the index.
    template <class T>
    void gather_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y);
    // Adds x (outer, count, inner) to y (outer, size, inner) at the index, in increasing order of the second
    // dimension of x. On CUDA, a position out of range writes NaN to position 0 of y.
    template <class T>
    void scatter_add_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y);
    // Copies the rows of table (rows, dim) that index (count,) selects to y (count, dim).
    template <class T> void gather_rows(Backend, const T* table, int64_t rows, const int64_t* index, T* y,
                                        int64_t count, int64_t dim);
    // Adds row i of g (count, dim) to row index[i] of table (rows, dim), for all i, in an order that depends
    // only on the index. count is below 2³¹. Rows out of range are ignored.
    template <class T> void scatter_add_rows(Backend, const T* g, const int64_t* index, T* table,
                                             int64_t rows, int64_t count, int64_t dim);

    // Writes out (batch, value_dim + position_dim): row b is the concatenation of table[tokens[b]] and
    // positions[position], plus added[position] if `added` is not null. On CUDA, each replay of a graph
    // advances the position (GraphStep).
    template <class T, class Index>
    void embed_rows(Backend, const T* table, int64_t rows, const Index* tokens, const T* positions,
                    const T* added, int64_t position, T* out, int64_t batch, int64_t value_dim,
                    int64_t position_dim);

)

}  // namespace tapeformer
