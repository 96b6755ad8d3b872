// Parts of attention with relative positions (Dai et al. 2019, "Transformer-XL", section 3.3): the score of
// query i and key j has a term that depends on the query and on the distance from j to i.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

// Adds position scores to content scores. `content` and the result are (batch, heads, queries, keys), and
// `position` is (batch, heads, queries, distances). The last query is at the position of the last key, so the
// distance d from key j to query i is keys - queries + i - j. The position score of this pair is in column
// keys - 1 - d. If this column does not exist, the result is -inf. With distances = keys, the result is
// therefore causal. Throws ShapeError if the shapes do not satisfy 1 <= queries <= keys <= distances < keys +
// queries. The gradient of the result must be 0 where the result is -inf; the gradient of softmax() satisfies
// this.
Tensor relative_scores(const Tensor& content, const Tensor& position);

// A ring with the keys and values of the newest `capacity` tokens, and a second ring with rows of compressed
// keys and values. Compressed row r stands for the tokens rate * r to rate * (r + 1) - 1. A query also
// attends to the newest `max_compressed` rows whose tokens are before its window.
struct RelativeCache {
  Tensor keys, values;  // (batch, capacity, heads, dim), contiguous
  KeyWindow window;     // causal window of a query; its span is at most `capacity`
  int64_t rate = 1;     // the position of the first key of each window is a multiple of `rate`
  int64_t max_compressed = 0;
  // (batch, rows, heads, dim), contiguous. The caller writes the rows. Undefined if max_compressed is 0.
  Tensor compressed_keys, compressed_values;
  Tensor scores;  // workspace, (batch, heads, distances)
  int64_t length = 0;
};

// The learned parts of the scores. Query q_i and key k_j have the score
//   ((q_i + content_bias) · k_j + (q_i + position_bias) · distances[i - j]) / sqrt(dim).
// The distances of compressed rows follow the distances of the tokens in the window, from the newest row to
// the oldest.
struct RelativeBias {
  Tensor content_bias, position_bias;  // (heads, dim)
  Tensor distances;                    // (distances, heads, dim): at least one row for each key of a query
};

// Processes one token of the causal form: appends k and v to the cache, then writes the attention of q to
// `out`. q, k, v and out are (batch, heads, dim) with a contiguous last dimension. The call is not recorded
// and allocates no memory. Throws ShapeError for mismatched shapes.
void relative_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, const RelativeBias& bias,
                             RelativeCache& cache, const Tensor& out);

}  // namespace tapeformer
