// Kernels that select tokens and copy the rows of the selected tokens (ops/token_selection.h), for attention
// within clusters.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/dtype.h"
#include "core/base/host_device.h"

namespace tapeformer {

// A selection of `count` tokens for each of `clusters` clusters. A token may be in several clusters. Tensors
// with a row for each token are (batch, length, heads, dim). Tensors with a row for each selected token are
// (batch, clusters, count, heads, dim).
struct TokenSelection {
  int64_t batch = 0, length = 0, heads = 0, clusters = 0, count = 0, dim = 0;
  // Positions of the selected tokens: (batch, heads, clusters, count), in increasing order within a cluster.
  const int64_t* positions = nullptr;

  // Returns the index of `token` in a cluster, or -1 if the cluster does not contain the token. `batch_head`
  // is example * heads + head.
  TAPEFORMER_HOST_DEVICE int64_t find(int64_t batch_head, int64_t cluster, int64_t token) const {
    const int64_t* const members = positions + (batch_head * clusters + cluster) * count;
    int64_t begin = 0, end = count;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (members[middle] < token)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin < count && members[begin] == token ? begin : -1;
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Finds the `count` largest elements of each row of x (rows, length), and writes their positions to
    // positions (rows, count) in increasing order. Among equal elements, elements with lower positions are
    // selected first. NaN counts as larger than all numbers.
    template <class T>
    void select_top_k(Backend, const T* x, int64_t rows, int64_t length, int64_t count, int64_t* positions);

    // Copies the selected rows of x (batch, length, heads, dim) to y (batch, clusters, count, heads, dim). If
    // `weights` (batch, length, heads) is not null, multiplies each row by the weight of its token.
    template <class T> void gather_selected_tokens(Backend, const TokenSelection& selection, const T* x,
                                                   const Compute<T>* weights, T* y);
    // Computes y (batch, length, heads, dim) from x (batch, clusters, count, heads, dim). The row of a token
    // in y is the sum of its rows in x, added in the order of the clusters. If `weights` (batch, length,
    // heads) is not null, the sum is divided by the number n of clusters that contain the token, and 1 / n is
    // written to `weights`. If no cluster contains the token, its row and its weight are 0.
    template <class T> void scatter_add_selected_tokens(Backend, const TokenSelection& selection, const T* x,
                                                        Compute<T>* weights, T* y);

)

}  // namespace tapeformer
