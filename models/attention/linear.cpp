#include <algorithm>
#include <array>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/linear_attention.h"

namespace tapeformer {
namespace {

class LinearState final : public AttentionState {
 public:
  explicit LinearState(const AttentionStateOptions& s)
      : sums(make_linear_attention_state(s.batch, s.heads, s.dim, s.value_dim, s.dtype, s.device)) {}
  void reset() override {
    sums.kv.fill(0);
    sums.key_sum.fill(0);
  }
  int64_t bytes() const override { return sums.kv.bytes() + sums.key_sum.bytes(); }

  LinearAttentionState sums;
};

// The names of the feature maps, in the order of FeatureMap.
constexpr std::array<const char*, 4> kFeatureMaps{"elu_plus_one", "relu", "squared_relu", "exponential"};

FeatureMap parse_feature_map(const std::string& name) {
  const auto found = std::find(kFeatureMaps.begin(), kFeatureMaps.end(), name);
  if (found == kFeatureMaps.end()) throw OptionError("feature_map", "unknown feature map \"" + name + "\"");
  return static_cast<FeatureMap>(found - kFeatureMaps.begin());
}

// Linear attention (Katharopoulos et al. 2020).
class LinearKind final : public Attention {
 public:
  LinearKind(FeatureMap map, double eps) {
    options_.feature_map = map;
    options_.eps = eps;
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    LinearAttentionOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    return linear_attention(q, k, v, options);
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    return std::make_unique<LinearState>(shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    linear_attention_step(q, k, v, static_cast<LinearState&>(state).sums, out, options_);
  }

 private:
  LinearAttentionOptions options_;
};

}  // namespace

AttentionKind make_linear_attention_kind() {
  return {.name = "linear",
          .help = "φ(q)ᵀ Σ φ(k) vᵀ / φ(q)ᵀ Σ φ(k): time is linear in the length",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .unequal_lengths = true,
                           .recurrent = true,
                           .weight_dropout = make_unsupported("it computes no attention weights"),
                           .bfloat16 = true,
                           .has_constant_size_state = true,
                           .can_round_step_results = true},
          .options = {{.name = "feature_map",
                       .default_value = std::string(kFeatureMaps[0]),
                       .help = "φ(x): elu(x) + 1, relu(x), relu(x)² or exp(x)",
                       .choices = {kFeatureMaps.begin(), kFeatureMaps.end()}},
                      {.name = "eps",
                       .default_value = 1e-6,
                       .help = "added to the denominator",
                       .min = 1e-12,
                       .max = 1}},
          .make =
              [](const OptionValues& options, const AttentionSetup&) {
                return std::make_unique<LinearKind>(
                    parse_feature_map(options.get<std::string>("feature_map")), options.get<double>("eps"));
              },
          // For each token, counts the update of the (dim, dim) state and the product of the query and the
          // state.
          .count_multiply_adds =
              [](const OptionValues&, const AttentionSize& size) {
                const auto dim = static_cast<double>(size.dim);
                return 2 * dim * dim * static_cast<double>(size.length);
              }};
}

}  // namespace tapeformer
