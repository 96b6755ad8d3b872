// Gather and scatter along the middle of (outer, size, inner); index (outer, count, inner) holds checked
// positions.
#pragma once

#include <cstdint>

namespace tapeformer::cpu {

struct IndexShape {
  int64_t outer, size, count, inner;
};

// y (outer, count, inner) = x (outer, size, inner) at the index
template <class T>
void gather_middle(const IndexShape& shape, const T* x, const int64_t* index, T* y);
// y (outer, size, inner) += x (outer, count, inner) at the index, in the order of count
template <class T>
void scatter_add_middle(const IndexShape& shape, const T* x, const int64_t* index, T* y);
// y (count, dim) = rows of the table (rows, dim)
template <class T>
void gather_rows(const T* table, const int64_t* index, T* y, int64_t count, int64_t dim);
// table (rows, dim) += g (count, dim) at the rows of the index, in the order of count
template <class T>
void scatter_add_rows(const T* g, const int64_t* index, T* table, int64_t count, int64_t dim);

// out (batch, value_dim + position_dim): table[tokens[b]], then position_row
template <class T, class Index>
void embed_rows(const T* table, const Index* tokens, const T* position_row, T* out, int64_t batch,
                int64_t value_dim, int64_t position_dim);

}  // namespace tapeformer::cpu
