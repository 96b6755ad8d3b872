// Softmax attention to a segment and its segment memory, with relative positions (Dai et al. 2019,
// "Transformer-XL", section 3.3).
#pragma once

#include "models/attention/attention.h"
#include "ops/relative_attention.h"

namespace tapeformer {

struct RelativeAttentionOptions {
  SegmentMemorySize memory_size = {};
  int64_t max_distance = 0;  // larger distances are replaced by this distance; 0: no limit
};

// The state of RelativeAttention: the parameters of the scores, and the keys and values of tokens and of
// compressed rows.
struct RelativeState {
  RelativeAttentionParameters parameters;
  RelativeAttentionCache cache;
};
// An AttentionState that contains a RelativeState.
class RelativeAttentionState : public AttentionState {
 public:
  explicit RelativeAttentionState(RelativeState state) : relative(std::move(state)) {}
  void reset() override { relative.cache.length = 0; }
  int64_t bytes() const override;
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override;

  RelativeState relative;
};

// The score of query i and key j is
//   ((q_i + u) · k_j + (q_i + w) · W r(i - j)) / √dim
// where r(d) is the vector of the sinusoids of distance d. The vectors u and w and the matrix W are
// parameters of the layer. Position 0 is the first row of the segment memory, and the tokens of the segment
// follow the memory. A compressed row of the memory has one position, although it represents several tokens.
class RelativeAttention : public Attention {
 public:
  RelativeAttention(const RelativeAttentionOptions& options, const AttentionSetup& setup);

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override;
  // Returns the state for decoding. Text is decoded in segments of the maximum length, as in training. A
  // query attends to its segment and to the memory before the segment.
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override;
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override;

 protected:
  const SegmentMemorySize& memory_size() const { return options_.memory_size; }
  RelativeState make_relative_state(const AttentionStateOptions& shape) const;

 private:
  // Returns the maximum number of keys that a query attends to.
  int64_t max_key_count() const { return options_.memory_size.max_rows() + segment_length_; }
  // Returns the sinusoids of the distances first, first + step, …, (count, width) float32.
  Tensor compute_sinusoids(int64_t width, int64_t first, int64_t count, int64_t step) const;
  // Returns the projected sinusoids W r(d) of the distances d from keys - 1 down to -later_keys. The shape of
  // the result is (1, heads, keys + later_keys, dim).
  Tensor project_distances(int64_t keys, int64_t later_keys) const;

  RelativeAttentionOptions options_;
  int64_t segment_length_;
  double dropout_;
  // The parameters of the score. content_bias_ is u and position_bias_ is w, both (heads, dim). projection_
  // is W, (heads * dim, heads * dim).
  Tensor content_bias_, position_bias_, projection_;
  Tensor sinusoids_;  // buffer; row i contains the sinusoids of distance max_key_count() - 1 - i
};

// Return the capabilities and the options of the kinds that are based on RelativeAttention.
AttentionCapabilities make_relative_attention_capabilities();
OptionSpec make_memory_option(int64_t default_value);
OptionSpec make_clamp_option();
// Returns the number of multiply-adds in a causal pass of one head. Counts two products for the scores and
// one product for the weighted sums. A query attends to half of the keys on average.
double count_relative_attention_multiply_adds(const OptionValues& options, const AttentionSize& size);
// Throws ShapeError unless the setup has a maximum length.
void check_relative_attention_setup(const char* kind, const AttentionSetup& setup);

}  // namespace tapeformer
