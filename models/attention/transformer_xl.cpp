#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/score_masks.h"
#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/relative_attention.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kTransformerXl = "transformer-xl";

Tensor with_heads_first(const Tensor& x) {
  return permute(x, {0, 2, 1, 3});
}

class RelativeState final : public AttentionState {
 public:
  RelativeState(const StateShape& s, const KeyWindow& window, const RelativeBias& relative) : bias(relative) {
    const int64_t capacity = relative.distances.size(0);
    const Tensor rows = Tensor::zeros({s.batch, capacity, s.heads, s.dim}, s.dtype, s.device);
    cache = {rows, rows.clone(), window, Tensor::zeros({s.batch, s.heads, capacity}, s.dtype, s.device)};
  }
  void reset() override { cache.length = 0; }
  int64_t bytes() const override { return cache.keys.bytes() + cache.values.bytes(); }

  RelativeBias bias;
  RelativeCache cache;
};

// Softmax attention with relative positions (Dai et al. 2019, "Transformer-XL", section 3.3). For query i and
// key j, the score is ((q_i + u) · k_j + (q_i + w) · W r(i - j)) / √dim, with the sinusoids r of the
// distance. The biases u and w and the matrix W are parameters of the layer.
class TransformerXlKind final : public Attention {
 public:
  TransformerXlKind(int64_t memory, int64_t clamp, const AttentionSetup& setup)
      : memory_(memory), clamp_(clamp), segment_(setup.max_length), dropout_(setup.dropout) {
    constexpr double kStd = 0.02;  // of the authors' code
    const int64_t width = setup.heads * setup.dim;
    add_parameter("content_bias", content_bias_, {setup.heads, setup.dim}, normal_init(kStd));
    add_parameter("position_bias", position_bias_, {setup.heads, setup.dim}, normal_init(kStd));
    add_parameter("position_projection.weight", projection_, {width, width},
                  uniform_init(1 / std::sqrt(static_cast<double>(width))));
    sinusoids_ = sinusoids(width, longest() - 1, longest() + segment_ - 1, -1);
    add_buffer("sinusoids", sinusoids_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    const int64_t queries = q.size(1), keys = k.size(1);
    check(queries == keys || (mask.causal && queries < keys && !mask.key_lengths.defined()), kTransformerXl,
          "only causal attention without masks has more keys than queries, got queries ", q.shape(),
          " and keys ", k.shape());
    check(queries <= segment_ && keys - queries <= memory_, kTransformerXl, "queries ", q.shape(),
          " and keys ", k.shape(), " exceed the maximum length ", segment_, " and the memory of ", memory_);
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const auto product = [&](const Tensor& bias, const Tensor& rows) {
      return matmul(with_heads_first(mul(add(q, bias), scale)), rows, {.transpose_b = true});
    };
    Tensor scores = relative_scores(product(content_bias_, with_heads_first(k)),
                                    product(position_bias_, distances(keys, mask.causal ? 0 : queries - 1)));
    if (mask.key_lengths.defined())
      scores = add(scores, reshape(length_scores(mask.key_lengths, keys, q), {q.size(0), 1, 1, keys}));
    const Tensor weights = dropout(softmax(scores), weight_dropout(q, k, dropout_, context, name));
    return contiguous(with_heads_first(matmul(weights, with_heads_first(v))));
  }

  // Text is decoded in segments of the maximum length, as in training. A query attends to its segment and to
  // the memory before the segment.
  std::unique_ptr<AttentionState> make_state(const StateShape& shape) const override {
    const NoGrad no_grad;
    const int64_t rows = std::min(shape.capacity, longest()), width = projection_.size(0);
    const Tensor table = sinusoids(width, 0, rows, 1).to(shape.dtype).to(shape.device);
    const RelativeBias bias{detach(content_bias_), detach(position_bias_),
                            reshape(projected(table), {rows, shape.heads, shape.dim})};
    return std::make_unique<RelativeState>(shape, KeyWindow{segment_, memory_, 0}, bias);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    auto& relative = static_cast<RelativeState&>(state);
    relative_attention_step(q, k, v, relative.bias, relative.cache, out);
  }

 private:
  // Returns the largest number of keys of a query.
  int64_t longest() const { return memory_ + segment_; }
  // Returns the sinusoids of the distances first, first + step, …, (count, width) float32.
  Tensor sinusoids(int64_t width, int64_t first, int64_t count, int64_t step) const {
    const Tensor table = Tensor::empty({count, width}, DType::float64);
    for (int64_t row = 0; row < count; ++row) {
      const int64_t distance = first + row * step;
      write_sinusoids(clamp_ > 0 ? std::clamp(distance, -clamp_, clamp_) : distance, width,
                      table.data<double>() + row * width);
    }
    return table.to(DType::float32);
  }
  Tensor projected(const Tensor& table) const { return matmul(table, projection_, {.transpose_b = true}); }
  // Returns the projected sinusoids of the distances keys - 1 to -later, (1, heads, distances, dim).
  Tensor distances(int64_t keys, int64_t later) const {
    const int64_t first = longest() - keys, count = keys + later;
    const Tensor rows = projected(slice(sinusoids_, 0, first, first + count));
    return with_heads_first(reshape(rows, {1, count, content_bias_.size(0), content_bias_.size(1)}));
  }

  int64_t memory_, clamp_, segment_;
  double dropout_;
  Tensor content_bias_, position_bias_, projection_;
  Tensor sinusoids_;  // buffer, of the distances longest() - 1 to 1 - segment_
};

}  // namespace

AttentionKind transformer_xl_attention_kind() {
  constexpr double kMaxTokens = 1 << 20;
  return {
      .name = kTransformerXl,
      .help = "softmax attention with relative positions to a segment and to the memory of earlier segments",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .cross_lengths = unsupported("distances are between positions of one sequence"),
                       .recurrent = true,
                       .weight_dropout = true,
                       .bfloat16 = unsupported("its scores are a sum of float32 products"),
                       .constant_state = true},
      .options = {{.name = "memory",
                   .default_value = int64_t{512},
                   .help = "tokens of earlier segments that a segment attends to; 0: none",
                   .min = 0,
                   .max = kMaxTokens},
                  {.name = "clamp",
                   .default_value = int64_t{0},
                   .help = "largest distance; larger distances count as this one; 0: no limit",
                   .min = 0,
                   .max = 2 * kMaxTokens}},
      .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
        check(setup.max_length > 0, kTransformerXl, "the distances need a maximum length");
        return std::make_unique<TransformerXlKind>(options.get<int64_t>("memory"),
                                                   options.get<int64_t>("clamp"), setup);
      },
      .memory = [](const OptionValues& options) { return options.get<int64_t>("memory"); },
      // Counts two products for the scores and one for the weighted sums, for half of the keys.
      .multiply_adds =
          [](const OptionValues&, const AttentionSize& size) {
            const auto length = static_cast<double>(size.length);
            return 1.5 * static_cast<double>(size.dim) * length * length;
          },
      .short_options = {{"memory", int64_t{0}}},
      // Charts measure single sequences, which have no memory.
      .variants = {{"transformer-xl", {{"memory", int64_t{0}}}}}};
}

}  // namespace tapeformer
