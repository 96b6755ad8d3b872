#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kMemoryCompressed = "memory-compressed";

// Attention to compressed keys and values (Liu et al. 2018, "Generating Wikipedia by summarizing long
// sequences"). A convolution with kernel size and stride `factor` compresses the keys and values. Each head
// has a separate convolution. In causal attention, a query attends to a compressed key only if all tokens
// that the key represents are at the position of the query or before it. The first queries of a sequence can
// attend to no compressed key. Therefore, a learned key precedes the compressed keys.
class MemoryCompressedKind final : public Attention {
 public:
  MemoryCompressedKind(int64_t factor, const AttentionSetup& setup)
      : factor_(factor), dropout_(setup.dropout) {
    const int64_t heads = setup.heads, dim = setup.dim, inputs = factor * dim;
    const Initializer initializer = make_uniform_initializer(1 / std::sqrt(static_cast<double>(inputs)));
    add_parameter("key_convolution.weight", key_weight_, {heads, inputs, dim}, initializer);
    add_parameter("key_convolution.bias", key_bias_, {heads, 1, dim}, initializer);
    add_parameter("value_convolution.weight", value_weight_, {heads, inputs, dim}, initializer);
    add_parameter("value_convolution.bias", value_bias_, {heads, 1, dim}, initializer);
    add_parameter("first_key", first_key_, {1, 1, heads, dim}, make_normal_initializer(1));
    add_parameter("first_value", first_value_, {1, 1, heads, dim}, make_normal_initializer(1));
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(!mask.causal || q.size(1) == k.size(1), kMemoryCompressed, "causal attention of queries ",
          q.shape(), " to keys ", k.shape(), " needs equal lengths");
    const Tensor keys = compressed(zero_masked_rows(k, mask), key_weight_, key_bias_, first_key_);
    const Tensor values = compressed(zero_masked_rows(v, mask), value_weight_, value_bias_, first_value_);
    if (mask.causal) return causal_attention(q, keys, values, mask, context, name);
    return softmax_attention(
        q, keys, values,
        make_softmax_attention_options(q, keys, compressed_mask(mask, 1), dropout_, context, name));
  }

 private:
  int64_t compressed_length(int64_t length) const { return (length + factor_ - 1) / factor_; }

  // Converts a mask of uncompressed keys to a mask of the learned key and the compressed keys. The result
  // contains the key length of each sequence `copies` times, because causal_attention() divides each sequence
  // into `copies` sequences.
  AttentionMask compressed_mask(const AttentionMask& mask, int64_t copies) const {
    if (!mask.key_lengths.defined()) return mask;
    const Tensor lengths = mask.key_lengths.to(kCpu);
    const Tensor rows = Tensor::empty({lengths.numel() * copies}, DType::int64);
    for (int64_t i = 0; i < rows.numel(); ++i)
      rows.data<int64_t>()[i] = 1 + compressed_length(lengths.data<int64_t>()[i / copies]);
    return {.causal = mask.causal, .key_lengths = rows};
  }

  // Returns the causal attention to `keys` (batch, steps, heads, dim), where key 0 is the learned key. Query
  // i attends to the keys 0 to (i + 1) / factor, rounded down. The queries are grouped by the remainder
  // (i + 1) % factor. In a group, each query attends to one more key than the previous query, so the group
  // has an ordinary causal mask.
  Tensor causal_attention(const Tensor& q, const Tensor& keys, const Tensor& values,
                          const AttentionMask& mask, ForwardContext context, const std::string& name) const {
    const int64_t batch = q.size(0), length = q.size(1), heads = q.size(2), steps = keys.size(1);
    const Tensor padded = pad(q, 1, 1, steps * factor_ - length - 1);
    const auto merged = [&](const Tensor& x) {
      return reshape(x, {batch * factor_, steps, heads, x.size(4)});
    };
    const auto repeated = [&](const Tensor& x) {
      const Tensor one = reshape(x, {batch, 1, steps, heads, x.size(3)});
      return merged(broadcast_to(one, {batch, factor_, steps, heads, x.size(3)}));
    };
    const Tensor queries = merged(permute(split_into_blocks(padded, 1, factor_), {0, 2, 1, 3, 4}));
    const Tensor repeated_keys = repeated(keys);
    context.first_example *= factor_;
    const Tensor out = softmax_attention(
        queries, repeated_keys, repeated(values),
        make_softmax_attention_options(queries, repeated_keys, compressed_mask(mask, factor_), dropout_,
                                       context, name));
    const Tensor groups = reshape(out, {batch, factor_, steps, heads, values.size(3)});
    const Tensor rows =
        reshape(permute(groups, {0, 2, 1, 3, 4}), {batch, steps * factor_, heads, values.size(3)});
    return contiguous(slice(rows, 1, 1, length + 1));
  }

  // Returns the learned row `first`, followed by the convolution of x (batch, length, heads, dim). The result
  // is (batch, 1 + compressed_length(length), heads, dim). The last span of `factor` tokens is padded with
  // zeros.
  Tensor compressed(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first) const {
    const int64_t batch = x.size(0), heads = x.size(2), dim = x.size(3), steps = compressed_length(x.size(1));
    const Tensor spans = permute(split_into_blocks(x, 1, factor_), {3, 0, 1, 2, 4});
    const Tensor products = add(matmul(reshape(spans, {heads, batch * steps, factor_ * dim}), weight), bias);
    const Tensor rows = permute(reshape(products, {heads, batch, steps, dim}), {1, 2, 0, 3});
    return concat({broadcast_to(first, {batch, 1, heads, dim}), rows}, 1);
  }

  int64_t factor_;
  double dropout_;
  Tensor key_weight_, key_bias_, value_weight_, value_bias_, first_key_, first_value_;
};

}  // namespace

AttentionKind make_memory_compressed_attention_kind() {
  return {.name = kMemoryCompressed,
          .help = "softmax attention to keys and values that a strided convolution compresses",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .unequal_lengths = true,
                           .recurrent = make_unsupported("only its parallel form is implemented"),
                           .weight_dropout = true,
                           .bfloat16 = make_unsupported("its convolutions are float32")},
          .options = {{.name = "factor",
                       .default_value = int64_t{3},
                       .help = "kernel size and stride of the convolution",
                       .min = 1,
                       .max = 1 << 16}},
          .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            return std::make_unique<MemoryCompressedKind>(options.get<int64_t>("factor"), setup);
          },
          // Counts the scores and the weighted sums of a causal pass, in which a query attends to half of the
          // compressed keys on average. Does not count the convolution, whose cost is linear in the length.
          .count_multiply_adds =
              [](const OptionValues& options, const AttentionSize& size) {
                const auto length = static_cast<double>(size.length);
                return static_cast<double>(size.dim) * length * length /
                       static_cast<double>(options.get<int64_t>("factor"));
              }};
}

}  // namespace tapeformer
