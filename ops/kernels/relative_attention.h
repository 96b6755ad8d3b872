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

// The query is token `length` - 1. Its keys have the distances 0, 1, 2, …. The first keys are the tokens of
// its window, from the newest to the oldest. Then follow at most `max_compressed` compressed rows, which
// stand for `rate` earlier tokens each.
struct RelativeStepShape {
  int64_t batch, heads, dim, capacity;
  int64_t length;  // tokens including the query; each replay of a CUDA graph advances it (GraphStep)
  KeyWindow window;
  int64_t rate, max_compressed, compressed_capacity;
  int64_t distances;  // number of distances with an embedding; at least keys(query)
  double scale;

  // Returns the number of tokens in the window of a query.
  TAPEFORMER_HOST_DEVICE int64_t tokens(int64_t query) const { return query - window.begin(query) + 1; }
  // Returns the number of keys of a query.
  TAPEFORMER_HOST_DEVICE int64_t keys(int64_t query) const {
    const int64_t rows = window.begin(query) / rate;
    return tokens(query) + (rows < max_compressed ? rows : max_compressed);
  }
};

// A ring of the rows of tokens, and a ring of compressed rows. Position p has row p % capacity of its ring.
template <class T>
struct RelativeRing {
  AttentionRows<T> tokens, compressed;

  // Returns the row of the key at `distance` from a query.
  TAPEFORMER_HOST_DEVICE T* row(const RelativeStepShape& s, int64_t query, int64_t distance, int64_t batch,
                                int64_t head) const {
    const int64_t count = s.tokens(query);
    if (distance < count) return tokens.row(batch, (query - distance) % s.capacity, head);
    const int64_t position = s.window.begin(query) / s.rate - 1 - (distance - count);
    return compressed.row(batch, position % s.compressed_capacity, head);
  }
};

// Inputs of a decoding step: q, k and v of one token per sequence, the contiguous biases (heads, dim), and
// the contiguous embeddings of distances (number of distances, heads, dim).
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

    // Stores a key and a value in the rings of tokens, and computes the attention of the query. `scores` is a
    // workspace, (batch, heads, shape.distances).
    template <class T>
    void relative_attention_step(Backend, const RelativeStepShape& shape, const RelativeStepInputs<T>& inputs,
                                 const RelativeRing<T>& keys, const RelativeRing<T>& values, T* scores,
                                 AttentionRows<T> out);)

}  // namespace tapeformer
