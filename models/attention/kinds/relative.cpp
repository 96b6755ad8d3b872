#include "models/attention/kinds/relative.h"

#include <algorithm>
#include <cmath>

#include "models/attention/kinds/softmax.h"
#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/relative_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kRelative = "relative attention";

Tensor move_heads_first(const Tensor& x) {
  return permute(x, {0, 2, 1, 3});
}

}  // namespace

void RelativeAttentionState::copy_rows(const AttentionState& from, std::span<const RowCopy> rows) {
  const RelativeAttentionCache& source = static_cast<const RelativeAttentionState&>(from).relative.cache;
  RelativeAttentionCache& cache = relative.cache;
  if (cache.max_compressed_rows > 0) return AttentionState::copy_rows(from, rows);
  cache.length = source.length;
  const int64_t used = std::min({cache.length, source.keys.size(1), cache.keys.size(1)});
  tapeformer::copy_rows(source.keys, cache.keys, rows, used);
  tapeformer::copy_rows(source.values, cache.values, rows, used);
}

int64_t RelativeAttentionState::bytes() const {
  const RelativeAttentionCache& cache = relative.cache;
  int64_t total = 0;
  for (const Tensor* rows : {&cache.keys, &cache.values, &cache.compressed_keys, &cache.compressed_values})
    if (rows->defined()) total += rows->bytes();
  return total;
}

RelativeAttention::RelativeAttention(const RelativeAttentionOptions& options, const AttentionSetup& setup)
    : options_(options), segment_length_(setup.max_length), dropout_(setup.dropout) {
  constexpr double kStd = 0.02;  // standard deviation in the code of Dai et al.
  const int64_t width = setup.heads * setup.dim;
  add_parameter("content_bias", content_bias_, {setup.heads, setup.dim}, make_normal_initializer(kStd));
  add_parameter("position_bias", position_bias_, {setup.heads, setup.dim}, make_normal_initializer(kStd));
  add_parameter("position_projection.weight", projection_, {width, width},
                make_uniform_initializer(1 / std::sqrt(static_cast<double>(width))));
  sinusoids_ = compute_sinusoids(width, max_key_count() - 1, max_key_count() + segment_length_ - 1, -1);
  add_buffer("sinusoids", sinusoids_);
}

Tensor RelativeAttention::forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionMask& mask, const ForwardContext& context,
                                  const std::string& name) const {
  const int64_t queries = q.size(1), keys = k.size(1);
  check(queries == keys || (mask.causal && queries < keys && !mask.key_lengths.defined()), kRelative,
        "only causal attention without masks has more keys than queries, got queries ", q.shape(),
        " and keys ", k.shape());
  check(queries <= segment_length_ && keys - queries <= memory_size().max_rows(), kRelative, "queries ",
        q.shape(), " and keys ", k.shape(), " exceed the maximum length ", segment_length_,
        " and the memory of ", memory_size().max_rows());
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor scores = matmul(move_heads_first(mul(add(q, position_bias_), scale)),
                               project_distances(keys, mask.causal ? 0 : queries - 1), {.transpose_b = true});
  SoftmaxAttentionOptions options = make_softmax_attention_options(q, k, mask, dropout_, context, name);
  options.bias = relative_shift(scores, keys);
  return softmax_attention(add(q, content_bias_), k, v, options);
}

// The ring buffer of compressed rows has more rows than the compressed memory. The additional rows represent
// tokens that are still in the uncompressed memory or in the current segment.
RelativeState RelativeAttention::make_relative_state(const AttentionStateOptions& shape) const {
  const NoGradScope no_grad;
  const SegmentMemorySize& m = memory_size();
  const int64_t distances = std::min(shape.capacity, max_key_count()), width = projection_.size(0);
  const Tensor table = compute_sinusoids(width, 0, distances, 1).to(shape.dtype).to(shape.device);
  const Tensor projected = matmul(table, projection_, {.transpose_b = true});
  const auto make_rows = [&](int64_t count) {
    return Tensor::zeros({shape.batch, count, shape.heads, shape.dim}, shape.dtype, shape.device);
  };
  const int64_t capacity = std::min(shape.capacity, m.tokens + segment_length_);
  RelativeAttentionCache cache{
      .keys = make_rows(capacity),
      .values = make_rows(capacity),
      .window = {segment_length_, m.tokens, 0},
      .compression_rate = m.compression_rate,
      .max_compressed_rows = m.compressed_rows,
      .score_workspace = Tensor::zeros({shape.batch, shape.heads, distances}, shape.dtype, shape.device)};
  if (m.compressed_rows > 0) {
    const int64_t rows = m.compressed_rows + (m.tokens + segment_length_) / m.compression_rate;
    cache.compressed_keys = make_rows(rows);
    cache.compressed_values = make_rows(rows);
  }
  return {{detach(content_bias_), detach(position_bias_),
           reshape(projected, {distances, shape.heads, shape.dim})},
          cache};
}

std::unique_ptr<AttentionState> RelativeAttention::make_state(const AttentionStateOptions& shape) const {
  return std::make_unique<RelativeAttentionState>(make_relative_state(shape));
}

void RelativeAttention::step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
                             const Tensor& out) const {
  RelativeState& relative = static_cast<RelativeAttentionState&>(state).relative;
  relative_attention_step(q, k, v, relative.parameters, relative.cache, out);
}

Tensor RelativeAttention::compute_sinusoids(int64_t width, int64_t first, int64_t count, int64_t step) const {
  const int64_t max_distance = options_.max_distance;
  const Tensor table = Tensor::empty({count, width}, DType::float64);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t distance = first + row * step;
    write_sinusoids(max_distance > 0 ? std::clamp(distance, -max_distance, max_distance) : distance, width,
                    table.data<double>() + row * width);
  }
  return table.to(DType::float32);
}

Tensor RelativeAttention::project_distances(int64_t keys, int64_t later_keys) const {
  const int64_t first = max_key_count() - keys, count = keys + later_keys;
  const Tensor rows = matmul(slice(sinusoids_, 0, first, first + count), projection_, {.transpose_b = true});
  return move_heads_first(reshape(rows, {1, count, content_bias_.size(0), content_bias_.size(1)}));
}

AttentionCapabilities make_relative_attention_capabilities() {
  return {.causal = true,
          .length_masks = true,
          .unequal_lengths = make_unsupported("distances are between positions of one sequence"),
          .recurrent = true,
          .weight_dropout = true,
          .bfloat16 = make_unsupported("its scores are a sum of float32 products"),
          .has_constant_size_state = true};
}

OptionSpec make_memory_option(int64_t default_value) {
  return {.name = "memory",
          .default_value = default_value,
          .help = "tokens of earlier segments that a segment attends to; 0: none",
          .min = 0,
          .max = 1 << 20};
}

OptionSpec make_clamp_option() {
  return {.name = "clamp",
          .default_value = int64_t{0},
          .help = "largest distance; larger distances count as this one; 0: no limit",
          .min = 0,
          .max = 1 << 21};
}

double count_relative_attention_multiply_adds(const OptionValues&, const AttentionSize& size) {
  const auto length = static_cast<double>(size.length);
  return 1.5 * static_cast<double>(size.dim) * length * length;
}

void check_relative_attention_setup(const char* kind, const AttentionSetup& setup) {
  check(setup.max_length > 0, kind, "the distances need a maximum length");
}

}  // namespace tapeformer
