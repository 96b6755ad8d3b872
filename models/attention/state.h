// States of attention in decoding.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

// Row `to` becomes a copy of row `from`.
struct RowCopy {
  int64_t from, to;
};

// Copies rows of `from` (rows, …) to rows of `to`, which has the same sizes except for the number of rows. If
// `count` is not negative, copies only the first `count` elements of the second dimension, whose size can
// then differ. They can be one tensor if no row is both read and written.
void copy_rows(const Tensor& from, const Tensor& to, std::span<const RowCopy> rows, int64_t count = -1);
// Returns a copy of these rows.
Tensor select_rows(const Tensor& from, std::span<const int64_t> rows);

// State of the recurrent form of an attention kind for a batch of sequences.
class AttentionState {
 public:
  AttentionState() = default;
  AttentionState(const AttentionState&) = delete;
  AttentionState& operator=(const AttentionState&) = delete;
  virtual ~AttentionState() = default;
  // Resets the state for new sequences. Does not free memory.
  virtual void reset() = 0;
  virtual int64_t bytes() const = 0;
  // Copies sequences of `from`, a state of the same layer. This state then has read as many tokens, which
  // must not exceed its capacity. `from` can be this state if no row is both read and written. Throws
  // std::invalid_argument if the kind does not implement it.
  virtual void copy_rows(const AttentionState& from, std::span<const RowCopy> rows);
};

// Sizes, dtype and device of an AttentionState.
struct AttentionStateOptions {
  int64_t batch, heads, dim, value_dim;
  int64_t capacity;  // maximum number of tokens between resets
  DType dtype;
  Device device;
  std::string name = {};        // full name of the layer, as in Attention::forward()
  int64_t key_heads = heads;    // of stored keys and values, a divisor of `heads`
  DType operand_dtype = dtype;  // of stored keys and values: `dtype`, or bfloat16 if the tokens are float32
};

// The state of a layer of self-attention after the first `position` tokens. `conv_history` (batch, kernel -
// 1, channels) is undefined without a convolution of the projections.
struct LayerState {
  AttentionState& attention;
  Tensor conv_history;
  int64_t position;
};
using LayerStates = std::map<std::string, LayerState>;  // by the full names of the layers

// The keys and values of sources, such as encoded sentences, that later queries read.
class SourceState {
 public:
  SourceState() = default;
  SourceState(const SourceState&) = delete;
  SourceState& operator=(const SourceState&) = delete;
  virtual ~SourceState() = default;
  // Writes the attention of q (sources, queries, heads, dim) to `out` (sources, queries, heads, value_dim).
  virtual void attend(const Tensor& q, const Tensor& out) const = 0;
  // Returns the state of these sources.
  virtual std::unique_ptr<SourceState> select(std::span<const int64_t> sources) const = 0;
};

}  // namespace tapeformer
