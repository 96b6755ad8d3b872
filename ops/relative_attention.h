// Parts of attention with relative positions (Dai et al. 2019, "Transformer-XL", section 3.3): the score of
// query i and key j has a term that depends on the query and on the distance from j to i.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

// Adds position scores to content scores. `content` and the result have shape (batch, heads, queries, keys).
// `position` has shape (batch, heads, queries, distances). The last query is at the position of the last key.
//
// For each query, the last dimension of `position` contains the scores of the distances keys - 1, keys - 2, …
// from the query to earlier keys. A negative distance stands for a key after the query. The result is -inf
// for a distance that is not in `position`. If distances = keys, these are the keys after the query.
//
// Throws ArgumentError unless 1 <= queries <= keys <= distances < keys + queries. The gradient of the result
// must be 0 where the result is -inf. The gradient of softmax() satisfies this condition.
Tensor relative_scores(const Tensor& content, const Tensor& position);

// Keys and values of previous tokens. A ring buffer contains the keys and values of the newest `capacity`
// tokens. A second ring buffer contains compressed keys and values. Compressed row r represents the tokens
// from rate * r to rate * (r + 1) - 1. A query attends to the tokens in its window and to the newest
// `max_compressed` rows of tokens before the window.
struct RelativeAttentionCache {
  Tensor keys, values;  // (batch, capacity, heads, dim), contiguous
  KeyWindow window;     // causal window of a query; its span is at most `capacity`
  int64_t rate = 1;     // tokens per compressed row; every window must begin at a multiple of `rate`
  int64_t max_compressed = 0;
  // (batch, rows, heads, dim), contiguous. The caller writes the rows. Undefined if max_compressed is 0.
  Tensor compressed_keys, compressed_values;
  Tensor scores;  // workspace, (batch, heads, distances)
  int64_t length = 0;
};

// The learned parts of the scores. Query q_i and key k_j have the score
//   ((q_i + content_bias) · k_j + (q_i + position_bias) · distances[i - j]) / sqrt(dim).
// Row d of `distances` is the embedding of the distance d. A query has the distances 0, 1, 2, … from the
// tokens in its window. The compressed rows have the next larger distances, from the newest row to the oldest
// row.
struct RelativeAttentionParameters {
  Tensor content_bias, position_bias;  // (heads, dim)
  // (distances, heads, dim), contiguous. The number of distances is at least the number of keys of a query.
  Tensor distances;
};

// Processes one token of the causal form: appends k and v to the cache, then writes the attention of q to
// `out`. q, k, v and out are (batch, heads, dim) with a contiguous last dimension. The call is not recorded
// and allocates no memory. Throws ArgumentError for mismatched shapes.
void relative_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                             const RelativeAttentionParameters& bias, RelativeAttentionCache& cache,
                             const Tensor& out);

}  // namespace tapeformer
