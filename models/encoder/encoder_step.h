// The recurrent form of a causal Encoder, which processes one token of every sequence of a batch at a time
// (Katharopoulos et al. 2020, section 3.4).
//
// A RecurrentEncoder uses the weights of the encoder and owns the attention states and all buffers. A step
// therefore allocates no memory, unless it compresses inputs for a compressed segment memory or has
// cross-attention. The results equal the results of Encoder::forward() up to rounding.
#pragma once

#include <memory>
#include <vector>

#include "models/encoder/encoder.h"
#include "ops/inference.h"

namespace tapeformer {

class RecurrentEncoder {
 public:
  // The encoder must outlive the object. `capacity` is the maximum number of tokens between resets. Throws
  // std::invalid_argument if an attention kind has no recurrent form, and as DecodingLinear for `format`.
  RecurrentEncoder(const Encoder& encoder, int64_t batch, int64_t capacity,
                   WeightFormat format = WeightFormat::operand);

  // Makes an encoder with the packed weights of `other`, whose batch must be at least as large, and empty
  // states.
  RecurrentEncoder(const RecurrentEncoder& other, int64_t batch, int64_t capacity);

  // Returns the buffer for the input of the next step, (batch, width). The caller fills the buffer before
  // each step.
  const Tensor& input() const { return input_; }
  // Processes one token of every sequence. Returns the result, (batch, output_width), after the final norm.
  // The result is valid until the next step.
  const Tensor& step();
  // Processes x (batch, length, width), the next tokens of every sequence, in the parallel form of the
  // layers. Returns the results, (batch, length, output_width), and allocates memory. Layers must not have
  // cross-attention.
  Tensor read(const Tensor& x);
  // Starts new sequences.
  void reset();
  int64_t state_bytes() const;

  // Sets the source that layers with cross-attention read. If it has n sequences, sequence i belongs to rows
  // [i * batch / n, (i + 1) * batch / n). Computes the keys and values of all layers once.
  void read_source(const EncodedSource& source);
  // Copies rows of the states, for a beam search. No row may be both read and written. Throws
  // std::invalid_argument if an attention kind does not implement it.
  void copy_rows(std::span<const RowCopy> rows);
  // Returns a copy with the rows of these sequences of the source only and another capacity. It shares the
  // packed weights.
  std::unique_ptr<RecurrentEncoder> select_sources(std::span<const int64_t> sources, int64_t capacity) const;

 private:
  struct TokenExecutor;

  // Cross-attention of a layer. Undefined members if the layer has none.
  struct CrossAttention {
    DecodingLinear query, out;
    DecodingNorm norm = {};
    std::unique_ptr<SourceState> source;
    Tensor projected;  // queries, (batch, width)
    Tensor attended;   // result of the attention, (batch, width)
  };
  // The weights and the attention state of a layer. `projections` computes queries, keys and values in one
  // matrix product, and `hidden` computes the inputs of the hidden units of the feed-forward block.
  struct Layer {
    const EncoderLayer& weights;
    DecodingLinear projections, out, hidden = {}, linear2 = {};
    DecodingNorm norm1, norm2 = {}, query_norm = {}, key_norm = {};
    CrossAttention cross = {};
    Tensor projected = {};     // results of the projections, (batch, width of the projections)
    Tensor conv_history = {};  // (batch, kernel - 1, …) of `projected`; undefined without a convolution
    // The bias of the convolution in the shape of its results, and a buffer; undefined without a bias.
    Tensor conv_bias = {}, conv_scratch = {};
    ProjectedHeads heads = {};  // views of `projected`, (batch, heads, dim)
    // Heads that the layer repeats for the attention, (batch, heads of the results, dim); undefined for
    // others.
    ProjectedHeads repeated = {};
    // Result of the attention, (batch, HeadSizes::result_width()), and its bfloat16 copy, which is defined
    // only on CUDA devices with the precision bfloat16.
    Tensor attended = {}, attended_operand = {};
    std::unique_ptr<AttentionState> state = nullptr;
    bool can_round_result = false;  // whether the attention can write bfloat16 results for float32 inputs
  };
  // Returns a layer with the packed weights for `batch` rows, without a state.
  Layer make_layer(const EncoderLayer& weights, int64_t index, int64_t batch, WeightFormat format) const;
  // Returns the input of the final norm.
  Tensor join_halves(const HiddenStates& states) const;
  // Makes the empty attention states and the buffers of the layers and of the encoder.
  void allocate();
  // Buffers that all layers share, because the layers run one after another. Each is large enough for all.
  struct SharedBuffers {
    Tensor projected, attended, attended_operand, query, key, value;
  };
  SharedBuffers make_shared_buffers(DType operand) const;
  // Sets the views and the state of a layer.
  void bind(Layer& layer, const SharedBuffers& buffers) const;
  void bind_conv(Layer& layer, const ShortConv& conv) const;

  const Encoder& encoder_;
  int64_t batch_, capacity_;
  std::vector<Layer> layers_;
  int64_t position_ = 0;                       // number of tokens since the last reset
  int64_t source_count_ = 0;                   // number of sequences of the source; 0: no source
  Tensor input_, normalized_, branch_result_;  // (batch, width)
  // (batch, width). Reversible layers: the second half of the state. Parallel branches: the sum of a layer,
  // alternately with input_.
  Tensor second_half_;
  Tensor concatenated_halves_;  // reversible layers: both halves of the state, (batch, 2 width)
  Tensor first_half_view_, second_half_view_;  // views of the halves of concatenated_halves_
  Tensor result_;                              // (batch, output_width)
  // bfloat16 copy of the input of a branch, which is defined only on CUDA devices with the precision
  // bfloat16.
  Tensor branch_operand_;
  // (batch, feedforward), in the dtype of the operands. In gated blocks, hidden_scratch_ is (batch, 2
  // feedforward).
  Tensor hidden_, hidden_scratch_;
  DecodingNorm final_norm_;
};

}  // namespace tapeformer
