#include <algorithm>
#include <array>

#include "models/attention/kinds/linear/learned_features.h"
#include "models/attention/kinds/linear/linear_state.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/feature_map.h"
#include "ops/lengths.h"
#include "ops/matmul.h"
#include "ops/rotary.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// The sums over the keys of a source (Katharopoulos et al. 2020, section 3.2), which do not depend on its
// length.
class LinearSource final : public SourceState {
 public:
  // `sums` (sources, heads, dim, value_dim + 1) are the sums of phi(k) [v, 1]^T.
  LinearSource(Tensor sums, const LinearAttentionOptions& options)
      : sums_(std::move(sums)), options_(options) {}
  void attend(const Tensor& q, const Tensor& out) const override {
    const int64_t width = out.size(3);
    const Tensor features = apply_feature_map(options_.feature_map, permute(q, {0, 2, 1, 3}));
    const Tensor product = matmul(features, sums_);
    out.copy_from(
        permute(div(slice(product, -1, 0, width), add(slice(product, -1, width, width + 1), options_.eps)),
                {0, 2, 1, 3}));
  }
  std::unique_ptr<SourceState> select(std::span<const int64_t> sources) const override {
    return std::make_unique<LinearSource>(select_rows(sums_, sources), options_);
  }

 private:
  Tensor sums_;
  LinearAttentionOptions options_;
};

// The names of the feature maps, in the order of FeatureMap.
constexpr std::array<const char*, 4> kFeatureMaps{"elu_plus_one", "relu", "squared_relu", "exponential"};

FeatureMap parse_feature_map(const std::string& name) {
  const auto found = std::find(kFeatureMaps.begin(), kFeatureMaps.end(), name);
  if (found == kFeatureMaps.end()) throw OptionError("feature_map", "unknown feature map \"" + name + "\"");
  return static_cast<FeatureMap>(found - kFeatureMaps.begin());
}

std::vector<std::string> list_feature_maps() {
  std::vector<std::string> names(kFeatureMaps.begin(), kFeatureMaps.end());
  names.insert(names.end(), {"hedgehog", "t2r"});
  return names;
}

// Linear attention (Katharopoulos et al. 2020).
class LinearKind final : public Attention {
 public:
  explicit LinearKind(const LinearAttentionOptions& options) : options_(options) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    LinearAttentionOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    return linear_attention(q, k, v, options);
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    return std::make_unique<LinearState>(shape, shape.dim);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    linear_attention_step(q, k, v, static_cast<LinearState&>(state).sums, out, options_);
  }
  Tensor read_tokens(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext&, const std::string&) const override {
    return read_linear_attention_tokens(q, k, v, static_cast<LinearState&>(state.attention).sums,
                                        state.position, options_);
  }
  std::unique_ptr<SourceState> read_source(const Tensor& k, const Tensor& v,
                                           const Tensor& key_lengths) const override {
    const DType dtype = v.dtype() == DType::bfloat16 ? DType::float32 : v.dtype();
    const Tensor lengths =
        prepare_lengths("linear attention", "key length", key_lengths, k.size(0), k.size(1));
    const Tensor valid = Tensor::zeros({k.size(0), k.size(1), 1, 1}, DType::float64);
    for (int64_t i = 0; i < valid.numel(); ++i)
      valid.data<double>()[i] = i % k.size(1) < lengths.data<int64_t>()[i / k.size(1)] ? 1 : 0;
    const Tensor ones = broadcast_to(valid.to(dtype).to(v.device()), {v.size(0), v.size(1), v.size(2), 1});
    const Tensor features = mul(apply_feature_map(options_.feature_map, cast(k, dtype)), ones);
    const Tensor values = concat({cast(v, dtype), ones}, -1);
    return std::make_unique<LinearSource>(
        matmul(permute(features, {0, 2, 3, 1}), permute(values, {0, 2, 1, 3})), options_);
  }

 private:
  LinearAttentionOptions options_;
};

// The state of linear attention with rotary positions, and buffers for the rotated features of a token.
class RotaryLinearState final : public LinearState {
 public:
  explicit RotaryLinearState(const AttentionStateOptions& s)
      : LinearState(s, s.dim),
        features{Tensor::empty({s.batch, s.heads, s.dim}, s.dtype, s.device),
                 Tensor::empty({s.batch, s.heads, s.dim}, s.dtype, s.device)} {}
  void reset() override {
    LinearState::reset();
    position = 0;
  }
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override {
    LinearState::copy_rows(from, rows);
    position = static_cast<const RotaryLinearState&>(from).position;
  }

  NumeratorFeatures features;
  int64_t position = 0;
};

// Linear attention with rotary positions (Su et al. 2021, "RoFormer", equation 19):
//   out_i = sum_j ((R_i phi(q_i)) . (R_j phi(k_j))) v_j / (sum_j phi(q_i) . phi(k_j) + eps),
// where R_i rotates pairs of features by angles that are proportional to i. The dot product of R_i phi(q_i)
// and R_j phi(k_j) depends on i and j only through i - j. The denominator has no rotations, because dot
// products of rotated vectors can be negative. For bfloat16 inputs, features and sums are float32.
class RotaryLinearKind final : public Attention {
 public:
  RotaryLinearKind(const LinearAttentionOptions& options, const RotaryOptions& rotation)
      : options_(options), rotation_(rotation) {}

  bool applies_rotary_positions() const override { return true; }
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    const DType dtype = v.dtype() == DType::bfloat16 ? DType::float32 : v.dtype();
    const LinearAttentionOptions sums{.causal = mask.causal,
                                      .key_lengths = mask.key_lengths,
                                      .feature_map = FeatureMap::identity,
                                      .normalized = false};
    const Tensor query = apply_feature_map(options_.feature_map, cast(q, dtype)),
                 key = apply_feature_map(options_.feature_map, cast(k, dtype)),
                 ones = Tensor::full({v.size(0), v.size(1), v.size(2), 1}, 1, dtype, v.device());
    const Tensor numerator = linear_attention(rotary_embedding(query, rotation_),
                                              rotary_embedding(key, rotation_), cast(v, dtype), sums);
    const Tensor denominator = linear_attention(query, key, ones, sums);
    return cast(div(numerator, add(denominator, options_.eps)), v.dtype());
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    return std::make_unique<RotaryLinearState>(shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& attention_state,
            const Tensor& out) const override {
    auto& state = static_cast<RotaryLinearState&>(attention_state);
    RotaryOptions rotation = rotation_;
    rotation.first_position = state.position;
    for (const auto& [input, features] : {std::pair(&q, &state.features.q), {&k, &state.features.k}}) {
      features->copy_from(*input);
      apply_feature_map_in_place(options_.feature_map, *features);
      rotate_token_in_place(*features, rotation);
    }
    linear_attention_step(q, k, v, state.sums, out, options_, state.features);
    ++state.position;
  }

 private:
  LinearAttentionOptions options_;
  RotaryOptions rotation_;
};

// The values of the option `rotation`.
constexpr std::array<const char*, 2> kRotations{"inputs", "features"};

std::unique_ptr<Attention> make_linear_attention(const OptionValues& values, const AttentionSetup& setup) {
  const auto map = values.get<std::string>("feature_map");
  if (const auto learned = find_learned_feature_map(map)) {
    if (values.get<std::string>("rotation") != kRotations[0])
      throw OptionError("rotation", "a learned feature map needs \"inputs\"");
    return make_learned_linear_attention(*learned, values.get<int64_t>("features"), values.get<double>("eps"),
                                         setup);
  }
  const LinearAttentionOptions options{.feature_map = parse_feature_map(map),
                                       .eps = values.get<double>("eps")};
  if (values.get<std::string>("rotation") == kRotations[0]) return std::make_unique<LinearKind>(options);
  if (!setup.rotary) throw OptionError("rotation", "\"features\" needs rotary positions");
  if (setup.rotation.features == 0 && setup.dim % 2 != 0)
    throw OptionError("rotation", "\"features\" needs heads of even width, not " + std::to_string(setup.dim));
  return std::make_unique<RotaryLinearKind>(options, setup.rotation);
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
                       .can_round_step_results = true,
                       .approximates_softmax = false},
      .options =
          {{.name = "feature_map",
            .default_value = std::string(kFeatureMaps[0]),
            .help = "φ(x): elu(x) + 1, relu(x), relu(x)², exp(x), or with parameters: [softmax(W x), "
                    "softmax(-W x)], relu(W x + b)",
            .choices = list_feature_maps(),
            .is_fixed_by_training = true},
           make_features_option(),
           {.name = "eps", .default_value = 1e-6, .help = "added to the denominator", .min = 1e-12, .max = 1},
           {.name = "rotation",
            .default_value = std::string(kRotations[0]),
            .help = "tensors that rotary positions rotate: the inputs x of φ, or the features φ(x) in the "
                    "numerator (RoFormer, equation 19)",
            .choices = {kRotations.begin(), kRotations.end()},
            .is_fixed_by_training = true}},
      .make = make_linear_attention,
      // For each token, counts the update of the (dim, dim) state and the product of the query and the
      // state.
      .count_multiply_adds = [](const OptionValues&, const AttentionSize& size) {
        const auto dim = static_cast<double>(size.dim);
        return 2 * dim * dim * static_cast<double>(size.length);
      }};
}

}  // namespace tapeformer
