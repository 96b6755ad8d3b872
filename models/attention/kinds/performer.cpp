#include <map>

#include "models/attention/attention.h"
#include "models/attention/kinds/linear/linear_state.h"
#include "models/layers/option_error.h"
#include "ops/random_features.h"

namespace tapeformer {
namespace {

struct PerformerOptions {
  RandomProjectionOptions projection;
  bool relu = false;
  int64_t redraw_steps = 0;
  uint64_t seed = 0;
  double relu_offset = 0, eps = 0;

  RandomFeatureMap query_map() const {
    return relu ? RandomFeatureMap::relu : RandomFeatureMap::softmax_query;
  }
  RandomFeatureMap key_map() const { return relu ? RandomFeatureMap::relu : RandomFeatureMap::softmax_key; }
  // linear_attention() applies a feature map. Random features are not negative, so relu does not change them.
  LinearAttentionOptions linear() const { return {.feature_map = FeatureMap::relu, .eps = eps}; }
};

struct PerformerState final : LinearState {
  PerformerState(const AttentionStateOptions& s, const Tensor& random_projection)
      : LinearState(s, random_projection.size(0)),
        projection(random_projection),
        query_features(Tensor::empty({s.batch, s.heads, projection.size(0)}, s.dtype, s.device)),
        key_features(Tensor::empty_like(query_features)),
        query(Tensor::empty({s.batch, s.heads, s.dim}, s.dtype, s.device)),
        key(Tensor::empty_like(query)) {}
  int64_t bytes() const override {
    return LinearState::bytes() + query_features.bytes() + key_features.bytes() + query.bytes() + key.bytes();
  }

  Tensor projection, query_features, key_features;
  Tensor query, key;  // contiguous copies of the arguments of a step
};

// FAVOR+, the attention of "Rethinking Attention with Performers" (Choromanski et al. 2020).
class PerformerKind final : public Attention {
 public:
  explicit PerformerKind(const PerformerOptions& options) : options_(options) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    const Tensor projection = projection_of(name, context, q);
    LinearAttentionOptions linear = options_.linear();
    linear.causal = mask.causal;
    linear.key_lengths = mask.key_lengths;
    return linear_attention(random_features(q, projection, options_.query_map(), options_.relu_offset),
                            random_features(k, projection, options_.key_map(), options_.relu_offset), v,
                            linear);
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    const Tensor like = Tensor::empty({shape.dim}, shape.dtype, shape.device);
    return std::make_unique<PerformerState>(shape, draw(shape.name, 0, like));
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    const auto& s = static_cast<PerformerState&>(state);
    s.query.copy_from(q);
    s.key.copy_from(k);
    random_features_into(s.query, s.projection, options_.query_map(), options_.relu_offset, s.query_features);
    random_features_into(s.key, s.projection, options_.key_map(), options_.relu_offset, s.key_features);
    linear_attention_step(s.query_features, s.key_features, v, s.sums, out, options_.linear());
  }

 private:
  struct Drawn {
    uint64_t draw = 0;
    Tensor projection;
  };

  // Returns the index of the random projection that a forward pass uses. Evaluation and decoding use index 0.
  uint64_t projection_index(const ForwardContext& context) const {
    return redraws(context) ? context.step / static_cast<uint64_t>(options_.redraw_steps) : 0;
  }
  bool redraws(const ForwardContext& context) const { return context.training && options_.redraw_steps > 0; }

  // Draws a projection, (features, dim), with the dtype and the device of x (…, dim).
  Tensor draw(const std::string& name, uint64_t index, const Tensor& x) const {
    const RandomStream stream(options_.seed, name + ".random_features", index);
    return make_random_projection(x.size(-1), options_.projection, stream).to(x.dtype()).to(x.device());
  }

  // Returns the random projection of the layer `name`, from a cache if possible.
  //
  // Projections that are redrawn in training are not cached on a CUDA device, because a captured CUDA graph
  // would use the cached projection in every step. Instead, draw() copies a new projection to the device, so
  // capturing a graph throws CudaGraphError.
  Tensor projection_of(const std::string& name, const ForwardContext& context, const Tensor& x) const {
    const uint64_t index = projection_index(context);
    if (redraws(context) && !x.device().is_cpu()) return draw(name, index, x);
    auto& [kept_index, kept] = projections_[name];
    if (!kept.defined() || kept_index != index || kept.dtype() != x.dtype() || kept.device() != x.device() ||
        kept.size(1) != x.size(-1)) {
      kept_index = index;
      kept = draw(name, index, x);
    }
    return kept;
  }

  PerformerOptions options_;
  mutable std::map<std::string, Drawn> projections_;  // keyed by layer name
};

PerformerOptions make_performer_options(const OptionValues& values) {
  PerformerOptions options;
  options.projection.features = values.get<int64_t>("features");
  options.projection.orthogonal = values.get<bool>("orthogonal");
  options.projection.antithetic = values.get<bool>("antithetic");
  options.relu = values.get<std::string>("kernel") == "relu";
  options.redraw_steps = values.get<int64_t>("redraw_steps");
  options.seed = static_cast<uint64_t>(values.get<int64_t>("feature_seed"));
  options.relu_offset = values.get<double>("relu_offset");
  options.eps = values.get<double>("eps");
  if (options.projection.antithetic && options.projection.features % 2 != 0)
    throw OptionError("features",
                      concat_text("antithetic features come in pairs: expected an even number, got ",
                                  options.projection.features));
  return options;
}

std::vector<OptionSpec> performer_option_specs() {
  return {{.name = "features",
           .default_value = int64_t{256},
           .help = "number of random features; the error is proportional to 1 / √features",
           .min = 1,
           .max = 1 << 16},
          {.name = "kernel",
           .default_value = std::string("softmax"),
           .help = "softmax: positive features that approximate softmax attention; relu: max(w · x, 0)",
           .choices = {"softmax", "relu"},
           .is_fixed_by_training = true},
          {.name = "orthogonal",
           .default_value = true,
           .help = "orthogonal random directions, which reduce the variance"},
          {.name = "antithetic",
           .default_value = false,
           .help = "directions in pairs w and -w, features exp(w · x) and exp(-w · x)"},
          {.name = "redraw_steps",
           .default_value = int64_t{0},
           .help = "training steps between draws of the features; 0: the features are fixed",
           .min = 0,
           .max = 1e12},
          {.name = "feature_seed",
           .default_value = int64_t{0},
           .help = "seed of the features in training, evaluation and decoding",
           .min = 0},
          {.name = "relu_offset",
           .default_value = 1e-3,
           .help = "added to relu features, for kernel = relu",
           .min = 0,
           .max = 1,
           .used_if = {"kernel", {"relu"}}},
          {.name = "eps",
           .default_value = 1e-30,
           .help = "added to the denominator of attention; avoids a division by 0",
           .min = 1e-30,
           .max = 1}};
}

}  // namespace

AttentionKind make_performer_attention_kind() {
  return {
      .name = "performer",
      .help = "FAVOR+ of Performer, linear attention of random features that approximates softmax attention",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths = true,
                       .recurrent = true,
                       .weight_dropout = make_unsupported("it computes no attention weights"),
                       .bfloat16 = make_unsupported("exponents of its features need float32"),
                       .has_constant_size_state = true,
                       .can_round_step_results = true,
                       .approximates_softmax = false},
      .options = performer_option_specs(),
      .make =
          [](const OptionValues& values, const AttentionSetup&) {
            return std::make_unique<PerformerKind>(make_performer_options(values));
          },
      // For each token, counts the projections of the query and the key, the update of the (features, dim)
      // state, and the product of the query features and the state.
      .count_multiply_adds =
          [](const OptionValues& values, const AttentionSize& size) {
            const auto features = static_cast<double>(values.get<int64_t>("features"));
            return 4 * features * static_cast<double>(size.dim) * static_cast<double>(size.length);
          },
      .test_options = {{"features", int64_t{6}}}};
}

}  // namespace tapeformer
