#include "models/attention/kinds/linear/learned_features.h"

#include <cmath>

#include "models/attention/kinds/linear/linear_state.h"
#include "ops/elementwise.h"
#include "ops/feature_map.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kHedgehog = "hedgehog";
constexpr const char* kT2r = "t2r";

int64_t choose_feature_count(LearnedFeatureMap map, int64_t dim, int64_t features) {
  if (features > 0) return features;
  return map == LearnedFeatureMap::hedgehog ? (dim + 1) / 2 : dim;
}

// Element [h, i, i] of (heads, features, dim) is 1.
void initialize_as_identity(const Tensor& weight, const RandomStream&) {
  const int64_t heads = weight.size(0), features = weight.size(1), dim = weight.size(2);
  weight.fill(0);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < features; ++i) weight.data<double>()[(h * features + i) * dim + i % dim] = 1;
}

}  // namespace

std::optional<LearnedFeatureMap> find_learned_feature_map(const std::string& name) {
  if (name == kHedgehog) return LearnedFeatureMap::hedgehog;
  if (name == kT2r) return LearnedFeatureMap::t2r;
  return std::nullopt;
}

OptionSpec make_features_option() {
  return {.name = "features",
          .default_value = int64_t{0},
          .help =
              "rows of W of a learned feature map; 0: half of the width of a head for hedgehog, whose "
              "features are twice as many, and the width of a head for t2r",
          .min = 0,
          .max = 1 << 12,
          .used_if = {"feature_map", {kHedgehog, kT2r}}};
}

LearnedFeatures::LearnedFeatures(LearnedFeatureMap map, int64_t heads, int64_t dim, int64_t features)
    : map_(map), heads_(heads), dim_(dim), features_(choose_feature_count(map, dim, features)) {
  const double bound = 1 / std::sqrt(static_cast<double>(dim));
  const bool is_hedgehog = map == LearnedFeatureMap::hedgehog;
  add_parameter("weight", weight_, {heads, features_, dim},
                is_hedgehog ? initialize_as_identity : make_uniform_initializer(bound), {.decays = false});
  if (!is_hedgehog)
    add_parameter("bias", bias_, {heads, features_}, make_uniform_initializer(bound), {.decays = false});
}

int64_t LearnedFeatures::width() const {
  return map_ == LearnedFeatureMap::hedgehog ? 2 * features_ : features_;
}

Tensor LearnedFeatures::forward(const Tensor& x) const {
  const int64_t batch = x.size(0), length = x.size(1);
  const Tensor rows = reshape(permute(x, {2, 0, 1, 3}), {heads_, batch * length, dim_});
  Tensor y = matmul(rows, weight_, {.transpose_b = true});
  if (map_ == LearnedFeatureMap::t2r)
    y = relu(add(y, reshape(bias_, {heads_, 1, features_})));
  else
    y = concat({softmax(y), softmax(neg(y))}, -1);
  return permute(reshape(y, {heads_, batch, length, width()}), {1, 2, 0, 3});
}

DecodingFeatures::DecodingFeatures(const LearnedFeatures& f, const AttentionStateOptions& s)
    : map_(f.map_),
      input_(Tensor::empty({s.batch, f.heads_, f.dim_}, s.dtype, s.device)),
      features_(Tensor::empty({s.batch, f.heads_, f.width()}, s.dtype, s.device)) {
  const NoGradScope no_grad;
  weight_ = permute(f.weight_, {0, 2, 1}).clone();
  if (map_ == LearnedFeatureMap::hedgehog) {
    weight_ = concat({weight_, neg(weight_)}, -1);
    rows_ = features_.view({s.batch * f.heads_ * 2, f.features_});
  } else {
    bias_ = Tensor::empty_like(features_);
    bias_.copy_from(f.bias_.view(bias_.shape(), {0, f.features_, 1}));
  }
}

const Tensor& DecodingFeatures::compute(const Tensor& x) const {
  input_.copy_from(x);
  multiply_heads_into(input_, weight_, features_);
  if (map_ == LearnedFeatureMap::hedgehog) {
    softmax_in_place(rows_);
  } else {
    add_into(features_, bias_, features_);
    apply_feature_map_in_place(FeatureMap::relu, features_);
  }
  return features_;
}

namespace {

struct LearnedLinearState final : LinearState {
  LearnedLinearState(const LearnedFeatures& query, const LearnedFeatures& key, const AttentionStateOptions& s)
      : LinearState(s, query.width()), query_map(query, s), key_map(key, s) {}

  DecodingFeatures query_map, key_map;
};

class LearnedLinearKind final : public Attention {
 public:
  LearnedLinearKind(LearnedFeatureMap map, int64_t features, double eps, const AttentionSetup& setup)
      : query_map_(map, setup.heads, setup.dim, features),
        key_map_(map, setup.heads, setup.dim, features),
        // Learned features are not negative, so relu does not change them.
        options_{.feature_map = FeatureMap::relu, .eps = eps} {
    add_child("query_features", query_map_);
    add_child("key_features", key_map_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext&, const std::string&) const override {
    LinearAttentionOptions options = options_;
    options.causal = mask.causal;
    options.key_lengths = mask.key_lengths;
    const DType dtype = get_compute_dtype(v.dtype());
    return cast(linear_attention(query_map_.forward(cast(q, dtype)), key_map_.forward(cast(k, dtype)),
                                 cast(v, dtype), options),
                v.dtype());
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    return std::make_unique<LearnedLinearState>(query_map_, key_map_, shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& attention_state,
            const Tensor& out) const override {
    const auto& state = static_cast<LearnedLinearState&>(attention_state);
    linear_attention_step(state.query_map.compute(q), state.key_map.compute(k), v, state.sums, out, options_);
  }
  Tensor read_tokens(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext&, const std::string&) const override {
    const DType dtype = get_compute_dtype(v.dtype());
    return cast(read_linear_attention_tokens(
                    query_map_.forward(cast(q, dtype)), key_map_.forward(cast(k, dtype)), cast(v, dtype),
                    static_cast<LinearState&>(state.attention).sums, state.position, options_),
                v.dtype());
  }

 private:
  LearnedFeatures query_map_, key_map_;
  LinearAttentionOptions options_;
};

}  // namespace

std::unique_ptr<Attention> make_learned_linear_attention(LearnedFeatureMap map, int64_t features, double eps,
                                                         const AttentionSetup& setup) {
  return std::make_unique<LearnedLinearKind>(map, features, eps, setup);
}

}  // namespace tapeformer
