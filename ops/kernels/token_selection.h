// Selections of tokens (ops/token_selection.h).
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dtype.h"
#include "core/host_device.h"

namespace tapeformer {

struct TokenSelection {
  int64_t batch = 0, length = 0, heads = 0, clusters = 0, count = 0, dim = 0;
  const int64_t* positions = nullptr;  // (batch, heads, clusters, count), increasing within a cluster

  // Returns the index of a token in a cluster, or -1. `list` is a batch index times heads plus a head.
  TAPEFORMER_HOST_DEVICE int64_t find(int64_t list, int64_t cluster, int64_t token) const {
    const int64_t* const all = positions + (list * clusters + cluster) * count;
    int64_t begin = 0, end = count;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (all[middle] < token)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin < count && all[begin] == token ? begin : -1;
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Writes the positions of the `count` largest elements of each row of x (rows, length), in increasing
    // order. Of equal elements, selects the first.
    template <class T>
    void select_largest(Backend, const T* x, int64_t rows, int64_t length, int64_t count, int64_t* positions);

    // Copies the selected rows of x (batch, length, heads, dim) to y (batch, clusters, count, heads, dim),
    // multiplied by weights (batch, length, heads) unless `weights` is null.
    template <class T> void gather_selected(Backend, const TokenSelection& selection, const T* x,
                                            const Compute<T>* weights, T* y);
    // Writes to y (batch, length, heads, dim) the sum of the rows of x (batch, clusters, count, heads, dim)
    // of each token, in the order of the clusters. Unless `weights` is null, writes the inverse number of
    // clusters of each token, or 0, to weights (batch, length, heads), and multiplies the sums by it.
    template <class T>
    void scatter_selected(Backend, const TokenSelection& selection, const T* x, Compute<T>* weights, T* y);

)

}  // namespace tapeformer
