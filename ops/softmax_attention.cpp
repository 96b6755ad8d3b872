#include "ops/softmax_attention.h"

#include <cmath>
#include <limits>

#include "core/dispatch.h"
#include "ops/detail/record_attention.h"
#include "ops/elementwise.h"
#include "ops/kernels/softmax_attention.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "softmax_attention";
constexpr const char* kStep = "softmax_attention_step";

double scale_or_default(double scale, int64_t dim) {
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(dim));
}

SoftmaxAttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SoftmaxAttentionOptions& options) {
  auto shape = attention_shape<SoftmaxAttentionShape>(q, k, v);
  shape.causal = options.causal;
  shape.window = options.window;
  shape.scale = scale_or_default(options.scale, q.size(3));
  shape.dropout = {options.dropout, options.dropout_stream, options.dropout_offset};
  return shape;
}

void check_dropout(double p) {
  check(p >= 0 && p < 1, kOp, "dropout must be in [0, 1), not ", p);
}

void check_window(const KeyWindow& window, const Tensor& q, const Tensor& k) {
  check(window.block >= 1 && window.before >= 0 && window.after >= 0, kOp, "the window has block ",
        window.block, ", before ", window.before, ", after ", window.after);
  check(!window.is_limited() || q.size(1) == k.size(1), kOp,
        "a window needs queries and keys of one length, not ", q.shape(), " and ", k.shape());
}

// Returns the mask (batch or 1, 1, query_length, key_length) to add to the scores: 0 if a query attends to a
// key, otherwise -inf.
Tensor additive_mask(const Tensor& key_lengths, bool causal, const KeyWindow& window, const Tensor& q,
                     const Tensor& k) {
  const int64_t batch = key_lengths.defined() ? q.size(0) : 1, queries = q.size(1), keys = k.size(1);
  const Tensor mask = Tensor::zeros({batch, 1, queries, keys}, DType::float64);
  double* element = mask.data<double>();
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j, ++element) {
        const bool seen = (!causal || j <= i + keys - queries) &&
                          (!window.is_limited() || (j >= window.begin(i) && j < window.end(i))) &&
                          (!key_lengths.defined() || j < key_lengths.data<int64_t>()[n]);
        if (!seen) *element = -std::numeric_limits<double>::infinity();
      }
  return mask.to(q.dtype());
}

}  // namespace

Tensor softmax_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const SoftmaxAttentionOptions& options) {
  check_attention_inputs(kOp, query, key, value);
  check_dropout(options.dropout);
  check_window(options.window, query, key);
  const Tensor lengths = checked_key_lengths(kOp, options.key_lengths, key);
  const Tensor q = contiguous_features(query), k = contiguous_features(key), v = contiguous_features(value);
  const SoftmaxAttentionShape shape = shape_of(q, k, v, options);
  const Tensor out = attention_result(q, v), log_sums = attention_sums(q);
  dispatch_stored(kOp, q, [&]<class T>(auto backend) {
    softmax_attention_forward(backend, with_key_lengths(shape, lengths), attention_rows<const T>(q),
                              attention_rows<const T>(k), attention_rows<const T>(v), out.data<T>(),
                              log_sums.data<Compute<T>>());
  });
  return record_attention(
      kOp, out, q, k, v, [shape, lengths, log_sums]<class T>(auto backend, const AttentionBackward<T>& x) {
        softmax_attention_backward(backend, with_key_lengths(shape, lengths), x.q, x.k, x.v, x.out,
                                   log_sums.data<Compute<T>>(), x.g, x.gradients);
      });
}

Tensor plain_softmax_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                               const SoftmaxAttentionOptions& options) {
  check_attention_inputs("plain_softmax_attention", query, key, value);
  check_dropout(options.dropout);
  check_window(options.window, query, key);
  const Tensor lengths = checked_key_lengths("plain_softmax_attention", options.key_lengths, key);
  const Shape heads_first{0, 2, 1, 3};
  const Tensor q = permute(query, heads_first), k = permute(key, heads_first),
               v = permute(value, heads_first);
  if (key.size(1) == 0)
    return Tensor::zeros({query.size(0), query.size(1), query.size(2), value.size(3)}, query.dtype(),
                         query.device());
  Tensor scores = mul(matmul(q, k, {.transpose_b = true}), scale_or_default(options.scale, query.size(3)));
  if (options.causal || lengths.defined() || options.window.is_limited())
    scores = add(scores, additive_mask(lengths, options.causal, options.window, query, key));
  const Tensor weights =
      dropout(softmax(scores), {options.dropout, options.dropout_stream, options.dropout_offset});
  return contiguous(permute(matmul(weights, v), heads_first));
}

void softmax_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache,
                            const Tensor& out, double scale) {
  check_attention_step(kStep, q, k, v, out);
  const int64_t batch = q.size(0), heads = q.size(1), dim = q.size(2), value_dim = v.size(2);
  const int64_t capacity = cache.keys.rank() == 4 ? cache.keys.size(1) : 0;
  check(cache.keys.shape() == Shape{batch, capacity, heads, dim} &&
            cache.values.shape() == Shape{batch, capacity, heads, value_dim} &&
            cache.keys.dtype() == q.dtype() && cache.values.dtype() == q.dtype() &&
            cache.keys.is_contiguous() && cache.values.is_contiguous(),
        kStep, "cache ", name_of(cache.keys.dtype()), " ", cache.keys.shape(), " and ", cache.values.shape(),
        " does not match k ", name_of(k.dtype()), " ", k.shape(), " and v ", v.shape());
  check(cache.length < capacity || capacity >= cache.window.span(), kStep, "the cache is full: capacity ",
        capacity, ", length ", cache.length);
  ++cache.length;
  SoftmaxAttentionShape shape;
  shape.batch = batch;
  shape.query_length = 1;
  shape.key_length = cache.length;
  shape.window = cache.window;
  shape.heads = heads;
  shape.dim = dim;
  shape.value_dim = value_dim;
  shape.scale = scale_or_default(scale, dim);
  dispatch(kStep, q, [&]<class T>(auto backend) {
    softmax_attention_step(backend, shape, attention_rows<const T>(q), attention_rows<const T>(k),
                           attention_rows<const T>(v), attention_rows<T>(cache.keys),
                           attention_rows<T>(cache.values), capacity, attention_rows<T>(out));
  });
}

}  // namespace tapeformer
