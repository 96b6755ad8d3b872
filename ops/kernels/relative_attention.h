// Kernels of attention with relative positions (ops/relative_attention.h).
#pragma once

#include "core/backends.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

// `rows` is the number of sequences times heads.
struct RelativeScoresShape {
  int64_t rows, queries, keys, distances;

  // Returns the column of the distance from a key to a query. The column may be `distances` or more.
  TAPEFORMER_HOST_DEVICE int64_t column(int64_t query, int64_t key) const {
    return key + queries - 1 - query;
  }
};

// Token `length` - 1 is the query. Position p of the text has row p % capacity of the ring.
struct RelativeStepShape {
  int64_t batch, heads, dim, capacity;
  int64_t length;  // a GraphStep on CUDA
  KeyWindow window;
  double scale;
};

// Inputs of a step: rows of one token, biases (heads, dim) and distances (distances, heads, dim), contiguous.
template <class T>
struct RelativeStepInputs {
  AttentionRows<const T> q, k, v;
  const T *content_bias, *position_bias, *distances;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes scores (rows, queries, keys) from content (rows, queries, keys) and position (rows, queries,
    // distances).
    template <class T> void relative_scores(Backend, const RelativeScoresShape& shape, const T* content,
                                            const T* position, T* scores);

    // Computes the gradient of `position` from the gradient of the scores.
    template <class T>
    void relative_scores_backward(Backend, const RelativeScoresShape& shape, const T* gradient, T* gposition);

    // Stores a key and a value in the rings, and computes the attention of the query. `scores` (batch, heads,
    // capacity) is a workspace.
    template <class T>
    void relative_attention_step(Backend, const RelativeStepShape& shape, const RelativeStepInputs<T>& inputs,
                                 AttentionRows<T> keys, AttentionRows<T> values, T* scores,
                                 AttentionRows<T> out);)

}  // namespace tapeformer
