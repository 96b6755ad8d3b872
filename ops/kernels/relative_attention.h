// Kernel of decoding with relative positions (ops/relative_attention.h), as in Transformer-XL.
#pragma once

#include "core/base/backends.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

// Sizes of a decoding step with one query per sequence. The query is the token at position `length` - 1. Its
// keys are the tokens in its window, and at most max_compressed_rows compressed rows. Each compressed row
// represents `compression_rate` tokens before the window.
//
// The keys have the distances 0, 1, 2, … from the newest to the oldest key. The compressed rows follow the
// tokens in the window.
struct RelativeAttentionStepShape {
  int64_t batch, heads, dim;
  int64_t capacity;  // number of tokens in the ring buffers
  // Number of tokens including the query. Each replay of a CUDA graph advances this number (GraphStep).
  int64_t length;
  KeyWindow window;
  int64_t compression_rate, max_compressed_rows;
  int64_t compressed_capacity;  // number of compressed rows in the ring buffers
  int64_t distances;            // number of distance embeddings, at least the number of keys
  double scale;                 // multiplier of the scores

  // Returns the number of keys of a query that are tokens of its window.
  TAPEFORMER_HOST_DEVICE int64_t window_token_count(int64_t query) const {
    return query - window.begin(query) + 1;
  }
  // Returns the number of keys of a query, which are tokens of its window and compressed rows.
  TAPEFORMER_HOST_DEVICE int64_t key_count(int64_t query) const {
    const int64_t rows = window.begin(query) / compression_rate;
    return window_token_count(query) + (rows < max_compressed_rows ? rows : max_compressed_rows);
  }
};

// The ring buffers of the keys, or of the values. Token p is in row p % capacity of `tokens`, and compressed
// row r is in row r % compressed_capacity of `compressed_rows`.
template <class T>
struct RelativeAttentionRingBuffers {
  AttentionRows<T> tokens, compressed_rows;

  // Returns the key, or the value, at `distance` from a query.
  TAPEFORMER_HOST_DEVICE T* row(const RelativeAttentionStepShape& s, int64_t query, int64_t distance,
                                int64_t batch, int64_t head) const {
    const int64_t count = s.window_token_count(query);
    if (distance < count) return tokens.row(batch, (query - distance) % s.capacity, head);
    const int64_t position = s.window.begin(query) / s.compression_rate - 1 - (distance - count);
    return compressed_rows.row(batch, position % s.compressed_capacity, head);
  }
};

// Inputs of a decoding step. q, k and v have length 1.
template <class T>
struct RelativeAttentionStepInputs {
  AttentionRows<const T> q, k, v;
  const T *content_bias, *position_bias;  // (heads, dim), contiguous
  const T* distance_embeddings;           // (distances, heads, dim), contiguous
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Writes k and v to the ring buffers of tokens. Then computes out (batch, 1, heads, dim), the attention
    // of q over the keys. `scores` (batch, heads, shape.distances) is a workspace.
    template <class T> void relative_attention_step(Backend, const RelativeAttentionStepShape& shape,
                                                    const RelativeAttentionStepInputs<T>& inputs,
                                                    const RelativeAttentionRingBuffers<T>& keys,
                                                    const RelativeAttentionRingBuffers<T>& values, T* scores,
                                                    AttentionRows<T> out);)

}  // namespace tapeformer
