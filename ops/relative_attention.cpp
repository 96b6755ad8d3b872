#include "ops/relative_attention.h"

#include <cmath>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/kernels/relative_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "relative_shift";
constexpr const char* kRelativeStep = "relative_attention_step";

// Returns the view y (…, queries, keys) of x (…, queries, keys + queries - 1) with y[i, j] = x[i, j + queries
// - 1 - i]. The call is not recorded.
Tensor shift_rows(const Tensor& x) {
  const int64_t queries = x.size(-2);
  Shape shape = x.shape(), strides = x.strides();
  shape[-1] -= queries - 1;
  strides[-2] -= strides[-1];
  return x.alias(shape, strides, (queries - 1) * strides[-1]);
}

void check_step(const RelativeAttentionParameters& bias, const RelativeAttentionCache& cache,
                const Shape& token) {
  const int64_t batch = token[0], heads = token[1], dim = token[2];
  check_defined(kRelativeStep, "keys", cache.keys, "values", cache.values, "score_workspace",
                cache.score_workspace);
  const int64_t capacity = cache.keys.rank() == 4 ? cache.keys.size(1) : 0;
  const Shape rows{batch, capacity, heads, dim};
  check_defined(kRelativeStep, "content_bias", bias.content_bias, "position_bias", bias.position_bias,
                "distance_embeddings", bias.distance_embeddings);
  check(cache.keys.shape() == rows && cache.values.shape() == rows && cache.keys.is_contiguous() &&
            cache.values.is_contiguous() &&
            cache.score_workspace.shape() == Shape{batch, heads, bias.distance_embeddings.size(0)},
        kRelativeStep, "the cache has ", cache.keys.shape(), ", ", cache.values.shape(), " and ",
        cache.score_workspace.shape(), ", and a token has ", token);
  check(cache.length < capacity || capacity >= cache.window.max_causal_key_count(), kRelativeStep,
        "the cache is full: capacity ", capacity, ", length ", cache.length);
  check(bias.content_bias.shape() == Shape{heads, dim} && bias.position_bias.shape() == Shape{heads, dim} &&
            bias.distance_embeddings.rank() == 3 && bias.distance_embeddings.size(0) >= capacity &&
            bias.distance_embeddings.size(1) == heads && bias.distance_embeddings.size(2) == dim &&
            bias.distance_embeddings.is_contiguous(),
        kRelativeStep, "biases ", bias.content_bias.shape(), ", ", bias.position_bias.shape(),
        " and distances ", bias.distance_embeddings.shape(), " do not match a cache of ", cache.keys.shape());
  if (cache.max_compressed_rows == 0) return;
  check_defined(kRelativeStep, "compressed_keys", cache.compressed_keys, "compressed_values",
                cache.compressed_values);
  const Shape& compressed = cache.compressed_keys.shape();
  check(compressed == Shape{batch, compressed[1], heads, dim} &&
            cache.compressed_values.shape() == compressed && cache.compressed_keys.is_contiguous() &&
            cache.compressed_values.is_contiguous() && compressed[1] >= cache.max_compressed_rows &&
            cache.compression_rate > 0,
        kRelativeStep, "compressed keys ", compressed, " and values ", cache.compressed_values.shape(),
        " do not match a token of ", token);
}

}  // namespace

Tensor relative_shift(const Tensor& x, int64_t keys) {
  check_defined(kOp, "x", x);
  check(x.rank() >= 2 && x.size(-2) >= 1, kOp,
        "expected (..., queries, distances) with at least one query, not ", x.shape());
  const int64_t missing = keys + x.size(-2) - 1 - x.size(-1);
  check(missing >= 0 && x.size(-1) >= keys, kOp, "expected from ", keys, " to ", x.size(-1) + missing,
        " distances, not ", x.shape());
  const Tensor padded = pad(x, -1, 0, missing);
  return record(kOp, shift_rows(padded), {&padded}, [shape = padded.shape()](const Tensor& g) {
    const Tensor gx = Tensor::zeros(shape, g.dtype(), g.device());
    shift_rows(gx).copy_from(g);
    return Gradients{gx};
  });
}

void relative_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                             const RelativeAttentionParameters& bias, RelativeAttentionCache& cache,
                             const Tensor& out) {
  check_attention_step(kRelativeStep, q, k, v, out);
  check(q.shape() == v.shape(), kRelativeStep, "queries ", q.shape(), " and values ", v.shape(),
        " must have equal shapes");
  check_step(bias, cache, q.shape());
  ++cache.length;
  const RelativeAttentionStepShape shape{q.size(0),
                                         q.size(1),
                                         q.size(2),
                                         cache.keys.size(1),
                                         cache.length,
                                         cache.window,
                                         cache.compression_rate,
                                         cache.max_compressed_rows,
                                         cache.max_compressed_rows > 0 ? cache.compressed_keys.size(1) : 1,
                                         bias.distance_embeddings.size(0),
                                         1 / std::sqrt(static_cast<double>(q.size(2)))};
  dispatch_float_or_double(kRelativeStep, q, [&]<class T>(auto backend) {
    const RelativeAttentionStepInputs<T> inputs{
        get_attention_rows<const T>(q), get_attention_rows<const T>(k), get_attention_rows<const T>(v),
        bias.content_bias.data<T>(),    bias.position_bias.data<T>(),   bias.distance_embeddings.data<T>()};
    const auto ring = [&](const Tensor& newest, const Tensor& compressed) {
      return RelativeAttentionRingBuffers<T>{
          get_attention_rows<T>(newest),
          compressed.defined() ? get_attention_rows<T>(compressed) : AttentionRows<T>()};
    };
    relative_attention_step(backend, shape, inputs, ring(cache.keys, cache.compressed_keys),
                            ring(cache.values, cache.compressed_values), cache.score_workspace.data<T>(),
                            get_attention_rows<T>(out));
  });
}

}  // namespace tapeformer
