// Parts of attention with relative positions (Dai et al. 2019, "Transformer-XL", section 3.3): the score of
// query i and key j has a term that depends on the query and on the distance from j to i.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

// Converts scores of distances to a bias of softmax_attention(). x (…, queries, distances) contains the
// scores of the distances from keys - 1 down to keys - distances. Distances from a query to a later key are
// negative. The last query is at the position of the last key. The result is y (…, queries, keys) with
//   y[i, j] = x[i, j + queries - 1 - i],
// the score of the distance from query i to key j, or 0 for distances that are not in x. The result is a view
// if x has keys + queries - 1 distances. Throws ShapeError unless 1 <= queries and keys <= distances < keys +
// queries.
Tensor relative_shift(const Tensor& x, int64_t keys);

// Ring buffers with the keys and values of previous tokens, and with compressed keys and values. A compressed
// row represents `compression_rate` consecutive tokens. A query attends to the tokens in its window and to
// the newest `max_compressed_rows` rows of tokens before the window.
struct RelativeAttentionCache {
  Tensor keys, values;  // (batch, capacity, heads, dim), contiguous
  KeyWindow window;     // causal window of a query; its span is at most `capacity`
  // Tokens per compressed row. Every window must begin at a multiple of `compression_rate`.
  int64_t compression_rate = 1;
  int64_t max_compressed_rows = 0;
  // (batch, rows, heads, dim), contiguous. The caller writes the rows. Undefined if max_compressed_rows is 0.
  Tensor compressed_keys = {}, compressed_values = {};
  Tensor score_workspace;  // (batch, heads, distances)
  int64_t length = 0;
};

// Learned parameters of the scores. Query q_i and key k_j have the score
//   ((q_i + content_bias) · k_j + (q_i + position_bias) · distance_embeddings[i - j]) / sqrt(dim).
// Row d of `distance_embeddings` is the embedding of the distance d. If D is the largest distance in the
// window, the compressed rows have the distances D + 1, D + 2, …, from the newest row to the oldest.
struct RelativeAttentionParameters {
  Tensor content_bias, position_bias;  // (heads, dim)
  // (distances, heads, dim), contiguous. The number of distances is at least the number of keys of a query.
  Tensor distance_embeddings;
};

// Processes one token of the causal form: appends k and v to the cache, then writes the attention of q to
// `out`. q, k, v and out are (batch, heads, dim) with a contiguous last dimension. The call is not recorded
// on the tape and allocates no memory. Throws ShapeError for mismatched shapes and for a full cache.
void relative_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                             const RelativeAttentionParameters& bias, RelativeAttentionCache& cache,
                             const Tensor& out);

}  // namespace tapeformer
