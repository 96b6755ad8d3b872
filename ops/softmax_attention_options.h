// The options of softmax_attention() (ops/softmax_attention.h).
#pragma once

#include "core/random/rng.h"
#include "core/tensor.h"
#include "ops/kernels/key_pattern.h"

namespace tapeformer {

struct SoftmaxAttentionOptions {
  bool causal = false;  // query i attends to keys 0 to i + key_length - query_length
  // Valid key lengths, (batch,) int64 in [0, key_length]. Later keys are masked. If undefined, no key is
  // masked.
  Tensor key_lengths = {};
  // The keys to which each query attends, unless `causal` or `key_lengths` masks them. The default pattern
  // contains all keys. If pattern.is_limited() is true, key_length must be equal to query_length. Kernels
  // skip tiles of scores in which no query attends to a key.
  KeyPattern pattern = {};
  // Indices of blocks of keys, int32 (rows, width) or (heads, rows, width) on the device of q. Each block has
  // pattern.table.block_size tokens. The queries of block r attend to the key blocks whose indices are in row
  // r. Negative indices are ignored. softmax_attention() sets the other members of pattern.table.
  Tensor key_blocks = {};
  // Bias of the scaled scores, (batch, heads, query_length, key_length). The dtype is the dtype of q, or
  // float32 if q is bfloat16. If undefined, the bias is 0. If the bias of a pair is -inf, the pair is masked.
  // The bias receives a gradient of its full size, and it is copied only if its last dimension is not
  // contiguous.
  Tensor bias = {};
  double scale = 0;    // multiplier of q_i . k_j; 0 stands for 1 / sqrt(dim)
  double dropout = 0;  // probability of setting an attention probability to zero
  // Random stream of dropout. The score with the row-major index n in (batch, heads, query_length,
  // key_length) uses element n + dropout_offset of the stream.
  RandomStream dropout_stream = {};
  int64_t dropout_offset = 0;
};

}  // namespace tapeformer
