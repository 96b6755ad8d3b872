// Kernels of gather and scatter. On the CPU, each index must be in range. On CUDA, an index cannot be checked
// without synchronisation, so gather kernels write NaN for an index out of range.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

// Sizes of a tensor (outer_size, size, inner_size), and of an index (outer_size, index_size, inner_size) that
// selects elements of the middle dimension.
struct GatherShape {
  int64_t outer_size, size, index_size, inner_size;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y[o, c, i] = x[o, index[o, c, i], i]. x is (outer_size, size, inner_size), and y has the shape
    // of `index`.
    template <class T>
    void gather_middle_dim(Backend, const GatherShape& shape, const T* x, const int64_t* index, T* y);
    // Adds x[o, c, i] to y[o, index[o, c, i], i] for each element of x, in increasing order of c. x has the
    // shape of `index`, and y is (outer_size, size, inner_size). If an index is out of range, the CUDA
    // kernel writes NaN to y[o, 0, i].
    template <class T>
    void scatter_add_middle_dim(Backend, const GatherShape& shape, const T* x, const int64_t* index, T* y);
    // Copies row index[i] of table (rows, dim) to row i of y (count, dim).
    template <class T> void gather_rows(Backend, const T* table, int64_t rows, const int64_t* index, T* y,
                                        int64_t count, int64_t dim);
    // Adds row i of g (count, dim) to row index[i] of table (rows, dim) for each i. The order of the
    // additions depends only on the index. `count` must be below 2³¹. An index out of range has no effect.
    template <class T> void scatter_add_rows(Backend, const T* g, const int64_t* index, T* table,
                                             int64_t rows, int64_t count, int64_t dim);

    // Computes out (batch, value_dim + position_dim). Row b is the concatenation of table[tokens[b]] and
    // positions[position]. If `added` (length, value_dim + position_dim) is not null, also adds
    // added[position] to each row. On CUDA, each replay of a graph advances the position (GraphStep).
    template <class T, class Index>
    void embed_rows(Backend, const T* table, int64_t rows, const Index* tokens, const T* positions,
                    const T* added, int64_t position, T* out, int64_t batch, int64_t value_dim,
                    int64_t position_dim);

)

}  // namespace tapeformer
