#include "models/attention/attention.h"
#include "ops/linear_attention.h"

namespace tapeformer {
namespace {

class LinearState final : public AttentionState {
 public:
  explicit LinearState(const StateShape& s)
      : value{Tensor::zeros({s.batch, s.heads, s.dim, s.value_dim}, s.dtype, s.device),
              Tensor::zeros({s.batch, s.heads, s.dim}, s.dtype, s.device)} {}
  void reset() override {
    value.kv.fill(0);
    value.key_sum.fill(0);
  }
  int64_t bytes() const override { return value.kv.bytes() + value.key_sum.bytes(); }

  LinearAttentionState value;
};

// Linearised attention with elu(x) + 1 (Katharopoulos et al. 2020).
class LinearKind final : public Attention {
 public:
  explicit LinearKind(double eps) { options_.eps = eps; }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    LinearAttentionOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    return linear_attention(q, k, v, options);
  }
  std::unique_ptr<AttentionState> make_state(const StateShape& shape) const override {
    return std::make_unique<LinearState>(shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    linear_attention_step(q, k, v, static_cast<LinearState&>(state).value, out, options_);
  }

 private:
  LinearAttentionOptions options_;
};

}  // namespace

AttentionKind linear_attention_kind() {
  return {.name = "linear",
          .help = "φ(q)ᵀ Σ φ(k) vᵀ / φ(q)ᵀ Σ φ(k) with φ(x) = elu(x) + 1: linear in the length",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .cross_lengths = true,
                           .recurrent = true,
                           .constant_state = true},
          .options = {{.name = "eps",
                       .default_value = 1e-6,
                       .help = "added to the denominator",
                       .min = 1e-12,
                       .max = 1}},
          .make = [](const OptionValues& options,
                     double) { return std::make_unique<LinearKind>(options.get<double>("eps")); },
          // One update and one product with a state of shape (dim, dim) per token.
          .flops =
              [](const OptionValues&, int64_t length, int64_t dim) {
                return 4 * static_cast<double>(dim) * static_cast<double>(dim) * static_cast<double>(length);
              }};
}

}  // namespace tapeformer
