#include <algorithm>
#include <array>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/linear_attention.h"
#include "ops/rotary.h"
#include "ops/view.h"

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

// Returns φ(x).
Tensor compute_features(FeatureMap map, const Tensor& x) {
  switch (map) {
    case FeatureMap::elu_plus_one:
      return add(elu(x), 1);
    case FeatureMap::relu:
      return relu(x);
    case FeatureMap::squared_relu:
      return square(relu(x));
    case FeatureMap::exponential:
      return exp(x);
    case FeatureMap::identity:
      break;
  }
  return x;
}

struct RotaryLinearState final : AttentionState {
  explicit RotaryLinearState(const AttentionStateOptions& s)
      : numerator(make_linear_attention_state(s.batch, s.heads, s.dim, s.value_dim, s.dtype, s.device)),
        denominator(make_linear_attention_state(s.batch, s.heads, s.dim, 1, s.dtype, s.device)),
        ones(Tensor::full({s.batch, s.heads, 1}, 1, s.dtype, s.device)) {}
  void reset() override {
    for (const LinearAttentionState* sums : {&numerator, &denominator}) {
      sums->kv.fill(0);
      sums->key_sum.fill(0);
    }
    position = 0;
  }
  int64_t bytes() const override {
    return numerator.kv.bytes() + numerator.key_sum.bytes() + denominator.kv.bytes() +
           denominator.key_sum.bytes() + ones.bytes();
  }

  LinearAttentionState numerator, denominator;
  Tensor ones;  // values of the sum in the denominator
  int64_t position = 0;
};

// Linear attention with rotary positions (Su et al. 2021, "RoFormer", equation 19):
//   out_i = sum_j ((R_i phi(q_i)) . (R_j phi(k_j))) v_j / (sum_j phi(q_i) . phi(k_j) + eps),
// where R_i rotates pairs of features by the position i. The weight of a value depends on the difference i -
// j only. The denominator has no rotations, because products of rotated features can be negative. Features
// and sums are float32 for bfloat16 inputs.
class RotaryLinearKind final : public Attention {
 public:
  RotaryLinearKind(FeatureMap map, double eps) : map_(map), eps_(eps) {}

  bool applies_rotary_positions() const override { return true; }
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    const DType dtype = v.dtype() == DType::bfloat16 ? DType::float32 : v.dtype();
    LinearAttentionOptions options = kSums;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    const Tensor query = compute_features(map_, cast(q, dtype)), key = compute_features(map_, cast(k, dtype));
    const Tensor ones = Tensor::full({v.size(0), v.size(1), v.size(2), 1}, 1, dtype, v.device());
    const Tensor numerator =
        linear_attention(rotary_embedding(query), rotary_embedding(key), cast(v, dtype), options);
    const Tensor denominator = linear_attention(query, key, ones, options);
    return cast(div(numerator, add(denominator, eps_)), v.dtype());
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    return std::make_unique<RotaryLinearState>(shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& attention_state,
            const Tensor& out) const override {
    auto& state = static_cast<RotaryLinearState&>(attention_state);
    const Tensor query = compute_features(map_, q), key = compute_features(map_, k);
    const Tensor numerator = Tensor::empty(v.shape(), v.dtype(), v.device()),
                 denominator = Tensor::empty(state.ones.shape(), v.dtype(), v.device());
    linear_attention_step(query, key, state.ones, state.denominator, denominator, kSums);
    for (const Tensor* features : {&query, &key})
      rotate_token_in_place(*features, {.first_position = state.position});
    linear_attention_step(query, key, v, state.numerator, numerator, kSums);
    out.copy_from(div(numerator, add(denominator, eps_)));
    ++state.position;
  }

 private:
  inline static const LinearAttentionOptions kSums{.feature_map = FeatureMap::identity, .normalized = false};

  FeatureMap map_;
  double eps_;
};

// The names of the tensors that rotary positions rotate.
constexpr std::array<const char*, 2> kRotations{"inputs", "features"};

std::unique_ptr<Attention> make_linear_attention(const OptionValues& options, const AttentionSetup& setup) {
  const FeatureMap map = parse_feature_map(options.get<std::string>("feature_map"));
  const double eps = options.get<double>("eps");
  if (options.get<std::string>("rotation") == kRotations[0]) return std::make_unique<LinearKind>(map, eps);
  if (!setup.rotary) throw OptionError("rotation", "\"features\" needs rotary positions");
  return std::make_unique<RotaryLinearKind>(map, eps);
}

}  // namespace

AttentionKind make_linear_attention_kind() {
  return {
      .name = "linear",
      .help = "φ(q)ᵀ Σ φ(k) vᵀ / φ(q)ᵀ Σ φ(k): time is linear in the length",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths = true,
                       .recurrent = true,
                       .weight_dropout = make_unsupported("it computes no attention weights"),
                       .bfloat16 = true,
                       .has_constant_size_state = true,
                       .can_round_step_results = true},
      .options =
          {{.name = "feature_map",
            .default_value = std::string(kFeatureMaps[0]),
            .help = "φ(x): elu(x) + 1, relu(x), relu(x)² or exp(x)",
            .choices = {kFeatureMaps.begin(), kFeatureMaps.end()}},
           {.name = "eps", .default_value = 1e-6, .help = "added to the denominator", .min = 1e-12, .max = 1},
           {.name = "rotation",
            .default_value = std::string(kRotations[0]),
            .help = "rotary positions rotate the inputs x of φ, or the features φ(x) in the "
                    "numerator (RoFormer, equation 19)",
            .choices = {kRotations.begin(), kRotations.end()}}},
      .make = make_linear_attention,
      // For each token, counts the update of the (dim, dim) state and the product of the query and the
      // state.
      .count_multiply_adds = [](const OptionValues&, const AttentionSize& size) {
        const auto dim = static_cast<double>(size.dim);
        return 2 * dim * dim * static_cast<double>(size.length);
      }};
}

}  // namespace tapeformer
