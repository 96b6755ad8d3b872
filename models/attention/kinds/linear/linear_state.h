// The state of linear attention in decoding, of kinds with different feature maps.
#pragma once

#include "models/attention/state.h"
#include "ops/linear_attention.h"

namespace tapeformer {

class LinearState : public AttentionState {
 public:
  // `features` is the width of the features of a query and of a key.
  LinearState(const AttentionStateOptions& s, int64_t features)
      : sums(make_linear_attention_state(s.batch, s.heads, features, s.value_dim, s.dtype, s.device)) {}
  void reset() override {
    sums.kv.fill(0);
    sums.key_sum.fill(0);
  }
  int64_t bytes() const override { return sums.kv.bytes() + sums.key_sum.bytes(); }
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override {
    const LinearAttentionState& source = static_cast<const LinearState&>(from).sums;
    tapeformer::copy_rows(source.kv, sums.kv, rows);
    tapeformer::copy_rows(source.key_sum, sums.key_sum, rows);
  }

  LinearAttentionState sums;
};

// Reads several tokens: adds them to the state, of which `position` is the number of its tokens, and returns
// the causal attention of q (batch, length, heads, dim) to the tokens of the state and of k and v.
Tensor read_linear_attention_tokens(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionState& state, int64_t position,
                                    LinearAttentionOptions options);

}  // namespace tapeformer
