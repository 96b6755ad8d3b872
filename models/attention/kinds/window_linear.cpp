#include <algorithm>
#include <cmath>

#include "models/attention/kinds/linear/learned_features.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "ops/elementwise.h"
#include "ops/gated_linear_attention.h"
#include "ops/linear_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

struct WindowLinearOptions {
  int64_t window = 0, features = 0;
  LearnedFeatureMap map = LearnedFeatureMap::hedgehog;
  double initial_share = 0;
};

struct WindowLinearState final : AttentionState {
  WindowLinearState(const LearnedFeatures& query, const LearnedFeatures& key, const Tensor& share,
                    int64_t window, const AttentionStateOptions& s)
      : query_map(query, s),
        key_map(key, s),
        cache(make_key_value_cache({s.batch, std::min(window, s.capacity), s.heads, s.dim, s.value_dim},
                                   s.operand_dtype, s.device,
                                   {.window = {.block_size = 1, .before = window - 1, .after = 0}})),
        sums(Tensor::zeros({s.batch, s.heads, query.width(), s.value_dim + 1}, s.dtype, s.device)),
        value(Tensor::full({s.batch, s.heads, s.value_dim + 1}, 1, s.dtype, s.device)),
        far(Tensor::empty_like(value)),
        near(Tensor::empty({s.batch, s.heads, s.value_dim}, s.dtype, s.device)),
        numerator(Tensor::empty_like(near)),
        denominator(Tensor::empty_like(near)),
        near_weight(Tensor::empty_like(near)) {
    near_weight.copy_from(share.view(near.shape(), {0, 1, 0}));
  }
  void reset() override {
    sums.fill(0);
    cache.length = 0;
  }
  int64_t bytes() const override { return sums.bytes() + cache.keys.bytes() + cache.values.bytes(); }
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override {
    const auto& source = static_cast<const WindowLinearState&>(from);
    cache.length = source.cache.length;
    const int64_t used = std::min({cache.length, source.cache.keys.size(1), cache.keys.size(1)});
    tapeformer::copy_rows(source.cache.keys, cache.keys, rows, used);
    tapeformer::copy_rows(source.cache.values, cache.values, rows, used);
    tapeformer::copy_rows(source.sums, sums, rows);
  }
  // Returns the tokens of `stored`, keys or values of the cache, in their order, followed by x.
  Tensor append_to(const Tensor& stored, const Tensor& x) const {
    const int64_t capacity = stored.size(1), first = cache.length < capacity ? 0 : cache.length % capacity;
    return concat({slice(stored, 1, first, std::min(cache.length, capacity)), slice(stored, 1, 0, first),
                   cast(x, stored.dtype())},
                  1);
  }
  // Returns the token of `stored`, keys or values of the cache, that the next token replaces, (batch, heads,
  // width).
  Tensor find_oldest(const Tensor& stored) const {
    const Shape& strides = stored.strides();
    return stored.view({stored.size(0), stored.size(2), stored.size(3)}, {strides[0], strides[2], 1},
                       cache.length % stored.size(1) * strides[1]);
  }

  DecodingFeatures query_map, key_map;
  KeyValueCache cache;
  Tensor
      sums;  // of the tokens before the window: sum of φ(k) [v, 1]ᵀ, (batch, heads, features, value_dim + 1)
  Tensor value, far;  // [v, 1] of one token, and the result of the sums: (batch, heads, value_dim + 1)
  Tensor near, numerator, denominator, near_weight;  // (batch, heads, value_dim)
};

// Softmax attention to the keys in a window, and linear attention to all keys outside of it, with one
// denominator:
//   out_i = (γ y_i + sum_j (φ(q_i) . φ(k_j)) v_j) / (γ + sum_j φ(q_i) . φ(k_j)),
// where y_i is the softmax attention to the window, the sums are over the keys outside of the window, and γ
// in (0, 1) is learned for each head. If the window contains all keys, the result is softmax attention.
// LoLCATs (Zhang et al. 2024, equation 6) multiplies γ by the sum of exp(score - largest score) of the
// window.
class WindowLinearKind final : public Attention {
 public:
  WindowLinearKind(const WindowLinearOptions& options, const AttentionSetup& setup)
      : window_(options.window),
        query_map_(options.map, setup.heads, setup.dim, options.features),
        key_map_(options.map, setup.heads, setup.dim, options.features) {
    add_child("query_features", query_map_);
    add_child("key_features", key_map_);
    add_parameter("window_share", share_logit_, {setup.heads},
                  make_constant_initializer(std::log(options.initial_share / (1 - options.initial_share))),
                  {.decays = false});
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    SoftmaxAttentionOptions near = make_softmax_attention_options(q, k, mask, 0, context, name);
    near.pattern.window = {.block_size = 1, .before = window_ - 1, .after = window_ - 1};
    const Tensor y = softmax_attention(q, k, v, near);
    if (q.size(1) <= window_) return y;
    const DType dtype = get_compute_dtype(v.dtype());
    const Tensor query = query_map_.forward(cast(q, dtype)),
                 key = zero_masked_rows(key_map_.forward(cast(k, dtype)), mask), value = append_ones(v);
    Tensor far = attend_to_earlier(query, key, value);
    if (!mask.causal) far = add(far, attend_to_later(query, key, value));
    return divide_sums(y, far);
  }
  Tensor read_tokens(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext&, const std::string&) const override {
    auto& s = static_cast<WindowLinearState&>(state.attention);
    const int64_t count = q.size(1), kept = std::min(s.cache.length, window_);
    const Tensor keys = s.append_to(s.cache.keys, k), values = s.append_to(s.cache.values, v);
    const Tensor y = slice(softmax_attention(pad(cast(q, keys.dtype()), 1, kept, 0), keys, values,
                                             {.causal = true, .pattern = s.cache.pattern}),
                           1, kept, kept + count);
    append_tokens(k, v, s.cache);
    if (s.cache.length <= window_) return cast(y, v.dtype());
    const auto delay = [&](const Tensor& x) { return slice(pad(x, 1, window_ - kept, 0), 1, 0, count); };
    const DType dtype = get_compute_dtype(v.dtype());
    const auto [far, sums] =
        gated_linear_attention(query_map_.forward(cast(q, dtype)), delay(key_map_.forward(cast(keys, dtype))),
                               delay(append_ones(values)), {.initial_state = s.sums});
    s.sums.copy_from(sums);
    return cast(divide_sums(y, far), v.dtype());
  }

  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    const NoGradScope no_grad;
    return std::make_unique<WindowLinearState>(query_map_, key_map_, sigmoid(detach(share_logit_)), window_,
                                               shape);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& attention_state,
            const Tensor& out) const override {
    auto& s = static_cast<WindowLinearState&>(attention_state);
    const int64_t width = v.size(2), row = width + 1;
    const auto view_parts = [&](const Tensor& x, int64_t column, int64_t stride) {
      return x.view(v.shape(), {v.size(1) * row, row, stride}, column);
    };
    if (s.cache.length < window_) {
      softmax_attention_step(q, k, v, s.cache, out);
      return;
    }
    view_parts(s.value, 0, 1).copy_from(s.find_oldest(s.cache.values));
    gated_linear_attention_step(s.query_map.compute(q), s.key_map.compute(s.find_oldest(s.cache.keys)),
                                s.value, {}, s.sums, s.far);
    softmax_attention_step(q, k, v, s.cache, s.near);
    s.numerator.copy_from(view_parts(s.far, 0, 1));
    s.denominator.copy_from(view_parts(s.far, width, 0));
    mul_into(s.near, s.near_weight, s.near);
    add_into(s.numerator, s.near, s.numerator);
    add_into(s.denominator, s.near_weight, s.denominator);
    div_into(s.numerator, s.denominator, out);
  }

 private:
  static Tensor append_ones(const Tensor& v) {
    const DType dtype = get_compute_dtype(v.dtype());
    return concat({cast(v, dtype), Tensor::full({v.size(0), v.size(1), v.size(2), 1}, 1, dtype, v.device())},
                  -1);
  }
  // Returns the attention for the softmax attention y to the window and the sums `far` over other keys, the
  // last of which is that of the weights. The result has the dtype of y.
  Tensor divide_sums(const Tensor& y, const Tensor& far) const {
    const Tensor share = reshape(sigmoid(share_logit_), {1, 1, y.size(2), 1});
    const int64_t width = y.size(3);
    return cast(div(add(mul(cast(y, far.dtype()), share), slice(far, -1, 0, width)),
                    add(slice(far, -1, width, width + 1), share)),
                y.dtype());
  }
  // The sums over the keys that are at least window_ tokens before the query, or after it.
  Tensor attend_to_earlier(const Tensor& query, const Tensor& key, const Tensor& value) const {
    const auto delay = [&](const Tensor& x) { return slice(pad(x, 1, window_, 0), 1, 0, x.size(1)); };
    return linear_attention(query, delay(key), delay(value),
                            {.causal = true, .feature_map = FeatureMap::identity, .normalized = false});
  }
  Tensor attend_to_later(const Tensor& query, const Tensor& key, const Tensor& value) const {
    const auto advance = [&](const Tensor& x) {
      return slice(pad(x, 1, 0, window_), 1, window_, window_ + x.size(1));
    };
    return gated_linear_attention(query, advance(key), advance(value), {.reverse = true}).out;
  }

  int64_t window_;
  LearnedFeatures query_map_, key_map_;
  Tensor share_logit_;  // the logit of γ, (heads,)
};

std::unique_ptr<Attention> make_window_linear_attention(const OptionValues& values,
                                                        const AttentionSetup& setup) {
  return std::make_unique<WindowLinearKind>(
      WindowLinearOptions{.window = values.get<int64_t>("window"),
                          .features = values.get<int64_t>("features"),
                          .map = *find_learned_feature_map(values.get<std::string>("feature_map")),
                          .initial_share = values.get<double>("initial_share")},
      setup);
}

}  // namespace

AttentionKind make_window_linear_attention_kind() {
  return {
      .name = "window-linear",
      .help =
          "softmax attention to a window and linear attention to all tokens before it, with one "
          "denominator (LoLCATs)",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths =
                           make_unsupported("a window is defined by the positions of one sequence"),
                       .recurrent = true,
                       .step_graphs = make_unsupported("its steps depend on the position of the token"),
                       .weight_dropout = make_unsupported("it computes no weights outside of the window"),
                       .bfloat16 = true,
                       .has_constant_size_state = true,
                       .approximates_softmax = false},
      .options = {{.name = "window",
                   .default_value = int64_t{64},
                   .help = "tokens of the window: the token itself, and tokens before it (without a causal "
                           "mask, also as many after it)",
                   .min = 1,
                   .max = 1 << 20,
                   .is_fixed_by_training = true},
                  {.name = "feature_map",
                   .default_value = std::string("hedgehog"),
                   .help = "learned φ(x): [softmax(W x), softmax(-W x)], or relu(W x + b)",
                   .choices = {"hedgehog", "t2r"},
                   .is_fixed_by_training = true},
                  make_features_option(),
                  {.name = "initial_share",
                   .default_value = 0.1,
                   .help = "initial weight γ of the window",
                   .min = 1e-6,
                   .max = 1 - 1e-6}},
      .make = make_window_linear_attention,
      // For each token, counts the softmax attention to the window, the features of the query and the key,
      // the update of the state, and the product of the query features and the state.
      .count_multiply_adds =
          [](const OptionValues& values, const AttentionSize& size) {
            const auto dim = static_cast<double>(size.dim), length = static_cast<double>(size.length);
            return count_sparse_attention_multiply_adds(static_cast<double>(values.get<int64_t>("window")),
                                                        size) +
                   4 * dim * dim * length;
          },
      .test_options = {{"window", int64_t{2}}}};
}

}  // namespace tapeformer
