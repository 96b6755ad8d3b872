#include "models/attention/softmax.h"

#include <algorithm>

#include "models/attention/score_masks.h"

namespace tapeformer {
namespace {

class SoftmaxState final : public AttentionState {
 public:
  SoftmaxState(const StateShape& s, const KeyWindow& window)
      : SoftmaxState(s, window, std::min(s.capacity, window.span())) {}
  void reset() override { cache.length = 0; }
  int64_t bytes() const override { return cache.keys.bytes() + cache.values.bytes(); }

  KeyValueCache cache;

 private:
  SoftmaxState(const StateShape& s, const KeyWindow& window, int64_t capacity)
      : cache{Tensor::zeros({s.batch, capacity, s.heads, s.dim}, s.dtype, s.device),
              Tensor::zeros({s.batch, capacity, s.heads, s.value_dim}, s.dtype, s.device), 0, window} {}
};

// Scaled dot-product attention (Vaswani et al. 2017) to the keys in a window.
class SoftmaxKind : public Attention {
 public:
  SoftmaxKind(const KeyWindow& window, double dropout) : window_(window), dropout_(dropout) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    SoftmaxAttentionOptions options = softmax_options(q, k, mask, dropout_, context, name);
    options.window = window_;
    return softmax_attention(q, k, v, options);
  }
  std::unique_ptr<AttentionState> make_state(const StateShape& shape) const override {
    return std::make_unique<SoftmaxState>(shape, window_);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    softmax_attention_step(q, k, v, static_cast<SoftmaxState&>(state).cache, out);
  }

 private:
  KeyWindow window_;
  double dropout_;
};

// Softmax attention whose queries are also the keys.
class SharedSoftmaxKind final : public SoftmaxKind {
 public:
  explicit SharedSoftmaxKind(double dropout) : SoftmaxKind({}, dropout) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(k.shape() == q.shape(), "shared softmax attention",
          "queries are used as keys, but the shapes of q ", q.shape(), " and k ", k.shape(), " differ");
    return SoftmaxKind::forward(q, k, v, mask, context, name);
  }
};

// Returns the multiply-adds of a causal pass. A query attends to half of the keys on average.
double softmax_multiply_adds(const OptionValues&, const AttentionSize& size) {
  const auto length = static_cast<double>(size.length);
  return 2 * static_cast<double>(size.dim) * 0.5 * length * length;
}

}  // namespace

SoftmaxAttentionOptions softmax_options(const Tensor& q, const Tensor& k, const AttentionMask& mask,
                                        double dropout, const ForwardContext& context,
                                        const std::string& name) {
  const DropoutMask weights = weight_dropout(q, k, dropout, context, name);
  SoftmaxAttentionOptions options;
  options.causal = mask.causal;
  options.key_lengths = mask.key_lengths;
  options.dropout = weights.p;
  options.dropout_stream = weights.stream;
  options.dropout_offset = weights.offset;
  return options;
}

std::unique_ptr<Attention> make_softmax_attention(const KeyWindow& window, double dropout) {
  return std::make_unique<SoftmaxKind>(window, dropout);
}

AttentionKind softmax_attention_kind() {
  return {.name = "softmax",
          .help = "softmax(q kᵀ / √dim) v, block by block: time is quadratic in the length, memory linear",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .cross_lengths = true,
                           .recurrent = true,
                           .weight_dropout = true,
                           .bfloat16 = true},
          .options = {},
          .make = [](const OptionValues&,
                     const AttentionSetup& setup) { return make_softmax_attention({}, setup.dropout); },
          .multiply_adds = softmax_multiply_adds};
}

AttentionKind shared_softmax_attention_kind() {
  return {.name = "shared-softmax",
          .help =
              "softmax(q qᵀ / √dim) v: softmax attention whose queries are also the keys, without the "
              "normalised keys and the masked own position of LSH attention",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .cross_lengths = unsupported("queries are used as keys"),
                           .recurrent = true,
                           .weight_dropout = true,
                           .bfloat16 = true,
                           .shared_query_key = true},
          .options = {},
          .make = [](const OptionValues&, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            return std::make_unique<SharedSoftmaxKind>(setup.dropout);
          },
          .multiply_adds = softmax_multiply_adds};
}

}  // namespace tapeformer
