#include <cmath>
#include <limits>

#include "models/attention/attention.h"
#include "models/attention/score_masks.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kMemoryCompressed = "memory-compressed";

// Attention to keys and values that a convolution with kernel size and stride `factor` compresses (Liu et al.
// 2018, "Generating Wikipedia by summarizing long sequences"). Each head has a separate convolution. In
// causal attention, a query attends to the compressed keys whose tokens are all at its position or before. A
// learned key precedes the compressed keys, because they are all masked for the first queries.
class MemoryCompressedKind final : public Attention {
 public:
  MemoryCompressedKind(int64_t factor, const AttentionSetup& setup)
      : factor_(factor), dropout_(setup.dropout) {
    const int64_t heads = setup.heads, dim = setup.dim, inputs = factor * dim;
    const Initializer initializer = uniform_init(1 / std::sqrt(static_cast<double>(inputs)));
    add_parameter("key_convolution.weight", key_weight_, {heads, inputs, dim}, initializer);
    add_parameter("key_convolution.bias", key_bias_, {heads, 1, dim}, initializer);
    add_parameter("value_convolution.weight", value_weight_, {heads, inputs, dim}, initializer);
    add_parameter("value_convolution.bias", value_bias_, {heads, 1, dim}, initializer);
    add_parameter("first_key", first_key_, {1, 1, heads, dim}, normal_init(1));
    add_parameter("first_value", first_value_, {1, 1, heads, dim}, normal_init(1));
    causal_ = causal_mask(setup.max_length);
    add_buffer("causal", causal_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(!mask.causal || q.size(1) == k.size(1), kMemoryCompressed, "causal attention of queries ",
          q.shape(), " to keys ", k.shape(), " needs equal lengths");
    check(!mask.causal || q.size(1) <= causal_.size(0), kMemoryCompressed, "sequences of ", q.size(1),
          " tokens are longer than the maximum, ", causal_.size(0));
    const auto heads_first = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
    const Tensor keys = compressed(valid_rows(k, mask), key_weight_, key_bias_, first_key_);
    const Tensor values = compressed(valid_rows(v, mask), value_weight_, value_bias_, first_value_);
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Tensor scores = matmul(heads_first(mul(q, scale)), heads_first(keys), {.transpose_b = true});
    const DropoutMask dropout_mask = weight_dropout(q, keys, dropout_, context, name);
    const Tensor weights = dropout(softmax(masked(scores, mask, q)), dropout_mask);
    return contiguous(heads_first(matmul(weights, heads_first(values))));
  }

 private:
  // Returns a (length, 1 + compressed_length(length)) float32 tensor on the CPU: 0 if the query attends to
  // the compressed key, otherwise -inf.
  Tensor causal_mask(int64_t length) const {
    const int64_t keys = 1 + compressed_length(length);
    const Tensor mask = Tensor::zeros({length, keys});
    for (int64_t i = 0; i < length; ++i)
      for (int64_t j = 1; j < keys; ++j)
        if (j * factor_ - 1 > i) mask.data<float>()[i * keys + j] = -std::numeric_limits<float>::infinity();
    return mask;
  }
  int64_t compressed_length(int64_t length) const { return (length + factor_ - 1) / factor_; }

  // Returns the learned row `first`, followed by the convolution of x (batch, length, heads, dim): (batch, 1
  // + compressed_length(length), heads, dim). Zeros fill up the last span of `factor` tokens.
  Tensor compressed(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first) const {
    const int64_t batch = x.size(0), heads = x.size(2), dim = x.size(3), steps = compressed_length(x.size(1));
    const int64_t missing = steps * factor_ - x.size(1);
    const Tensor padded =
        missing > 0 ? concat({x, Tensor::zeros({batch, missing, heads, dim}, x.dtype(), x.device())}, 1) : x;
    const Tensor spans = permute(reshape(padded, {batch, steps, factor_, heads, dim}), {3, 0, 1, 2, 4});
    const Tensor products = add(matmul(reshape(spans, {heads, batch * steps, factor_ * dim}), weight), bias);
    const Tensor rows = permute(reshape(products, {heads, batch, steps, dim}), {1, 2, 0, 3});
    return concat({broadcast_to(first, {batch, 1, heads, dim}), rows}, 1);
  }
  Tensor masked(Tensor scores, const AttentionMask& mask, const Tensor& q) const {
    const int64_t keys = scores.size(3);
    if (mask.causal) scores = add(scores, slice(slice(causal_, 0, 0, q.size(1)), 1, 0, keys));
    if (!mask.key_lengths.defined()) return scores;
    const Tensor lengths = mask.key_lengths.to(kCpu).clone();
    for (int64_t b = 0; b < lengths.numel(); ++b)
      lengths.data<int64_t>()[b] = 1 + compressed_length(lengths.data<int64_t>()[b]);
    return add(scores, reshape(length_scores(lengths, keys, q), {q.size(0), 1, 1, keys}));
  }

  int64_t factor_;
  double dropout_;
  Tensor key_weight_, key_bias_, value_weight_, value_bias_, first_key_, first_value_;
  Tensor causal_;  // buffer: causal_mask(max_length)
};

}  // namespace

AttentionKind memory_compressed_attention_kind() {
  return {.name = kMemoryCompressed,
          .help = "softmax attention to keys and values that a strided convolution compresses",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .cross_lengths = true,
                           .recurrent = unsupported("only its parallel form is implemented"),
                           .weight_dropout = true,
                           .bfloat16 = unsupported("its convolutions are float32")},
          .options = {{.name = "factor",
                       .default_value = int64_t{3},
                       .help = "kernel size and stride of the convolution",
                       .min = 1,
                       .max = 1 << 16}},
          .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            check(setup.max_length > 0, kMemoryCompressed, "the causal mask needs a maximum length");
            return std::make_unique<MemoryCompressedKind>(options.get<int64_t>("factor"), setup);
          },
          // Counts scores and weighted sums for half of the compressed keys. Omits the cost of the
          // convolution, which is linear in the length.
          .multiply_adds =
              [](const OptionValues& options, const AttentionSize& size) {
                const auto length = static_cast<double>(size.length);
                return static_cast<double>(size.dim) * length * length /
                       static_cast<double>(options.get<int64_t>("factor"));
              }};
}

}  // namespace tapeformer
