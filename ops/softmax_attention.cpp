// ops/reference/softmax_attention.h computes softmax_attention() and its gradient in plain loops. The kernels
// are in ops/cpu/softmax_attention.cpp and ops/cuda/softmax_attention.cu.
#include "ops/softmax_attention.h"

#include <algorithm>
#include <cmath>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/softmax_operands.h"
#include "ops/detail/strided_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "softmax_attention";
constexpr const char* kSoftmaxStep = "softmax_attention_step";

double scale_or_default(double scale, int64_t dim) {
  return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(dim));
}

SoftmaxAttentionShape make_shape(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const SoftmaxAttentionOptions& options) {
  auto shape = make_attention_shape<SoftmaxAttentionShape>(q, k, v);
  shape.head_group = k.size(2) > 0 ? q.size(2) / k.size(2) : 1;
  shape.causal = options.causal;
  shape.pattern = options.pattern;
  shape.scale = scale_or_default(options.scale, q.size(3));
  shape.dropout = {options.dropout, options.dropout_stream, options.dropout_offset};
  return shape;
}

void check_window(const KeyWindow& window) {
  check(window.block_size >= 1 && window.before >= 0 && window.block_size + window.before + window.after >= 0,
        kOp, "the window has block ", window.block_size, ", before ", window.before, " and after ",
        window.after, "; block must be at least 1, before at least 0, and after at least -(block + before)");
}

void check_pattern(const SoftmaxAttentionOptions& options, const Tensor& q, const Tensor& k) {
  const KeyPattern& pattern = options.pattern;
  for (const KeyWindow& window : {pattern.window, pattern.grid.row_window, pattern.grid.column_window})
    check_window(window);
  check(!pattern.is_limited() || q.size(1) == k.size(1), kOp,
        "a pattern needs queries and keys of equal length, not ", q.shape(), " and ", k.shape());
  check(pattern.dilated.step >= 0 && pattern.periodic.period >= 0 && pattern.periodic.count >= 0 &&
            pattern.periodic.count <= pattern.periodic.period && pattern.grid.width >= 0,
        kOp, "the pattern has step ", pattern.dilated.step, ", period ", pattern.periodic.period, ", count ",
        pattern.periodic.count, " and width ", pattern.grid.width,
        "; none may be negative, and count must not exceed period");
}

// Returns a copy of `pattern` in which the member `table` points to the data of `key_blocks`. If `key_blocks`
// is undefined, the copy is unchanged. `device` must be current_device (core/device.h), because
// Tensor::data() throws for other devices.
KeyPattern with_key_blocks(KeyPattern pattern, const Tensor& key_blocks, int64_t heads, Device device) {
  if (!key_blocks.defined()) return pattern;
  check((key_blocks.rank() == 2 || (key_blocks.rank() == 3 && key_blocks.size(0) == heads)) &&
            key_blocks.dtype() == DType::int32 && key_blocks.device() == device && key_blocks.is_contiguous(),
        kOp, "key_blocks must be int32 (rows, width) or (", heads, ", rows, width) on ", device.to_string(),
        ", not ", name_of(key_blocks.dtype()), " ", key_blocks.shape(), " on ",
        key_blocks.device().to_string());
  const int64_t rows = key_blocks.size(-2), width = key_blocks.size(-1);
  pattern.table = {key_blocks.data<int32_t>(), pattern.table.block_size, rows, width,
                   key_blocks.rank() == 3 ? rows * width : 0};
  return pattern;
}

// Returns a copy of x.shape with pointers to the data of key_lengths and key_blocks. Call this function
// inside dispatch_floating(), because Tensor::data() throws if a tensor is not on current_device.
SoftmaxAttentionShape get_shape_with_data(const SoftmaxOperands& x) {
  SoftmaxAttentionShape s = with_key_lengths(x.shape, x.key_lengths);
  s.pattern = with_key_blocks(s.pattern, x.key_blocks, s.heads, x.q.device());
  return s;
}

template <class T>
AttentionRows<T> get_rows_or_null(const Tensor& x) {
  return x.defined() ? get_attention_rows<T>(x) : AttentionRows<T>{};
}

// Returns options.bias as (batch, query_length, heads, key_length) with a contiguous last dimension.
Tensor prepare_bias(const SoftmaxAttentionOptions& options, const Tensor& q, const Tensor& k) {
  if (!options.bias.defined()) return {};
  const Shape shape{q.size(0), q.size(2), q.size(1), k.size(1)};
  const DType dtype = get_compute_dtype(q.dtype());
  check(options.bias.shape() == shape && options.bias.dtype() == dtype && options.bias.device() == q.device(),
        kOp, "the bias must be ", name_of(dtype), " ", shape, " on ", q.device().to_string(), ", not ",
        name_of(options.bias.dtype()), " ", options.bias.shape(), " on ", options.bias.device().to_string());
  return make_features_contiguous(transpose(options.bias, 1, 2));
}

// Throws ShapeError for invalid inputs and options.
SoftmaxOperands prepare_operands(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const SoftmaxAttentionOptions& options) {
  check_attention_inputs(kOp, q, k, v, {.grouped_heads = true});
  check(options.dropout >= 0 && options.dropout < 1, kOp, "dropout must be in [0, 1), not ", options.dropout);
  check_pattern(options, q, k);
  SoftmaxOperands x{make_features_contiguous(q), make_features_contiguous(k),
                    make_features_contiguous(v), prepare_key_lengths(kOp, options.key_lengths, k),
                    options.key_blocks,          make_shape(q, k, v, options)};
  x.bias = prepare_bias(options, q, k);
  return x;
}

void run_forward(const SoftmaxOperands& x, const SoftmaxResult& result) {
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    softmax_attention_forward(backend, get_shape_with_data(x), get_attention_rows<const T>(x.q),
                              get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                              get_rows_or_null<const Compute<T>>(x.bias), result.out.data<T>(),
                              result.log_sums.data<Compute<T>>());
  });
}

}  // namespace

SoftmaxResult run_softmax_forward(const SoftmaxOperands& x) {
  const SoftmaxResult result{allocate_attention_result(x.q, x.v), allocate_query_statistics(x.q)};
  run_forward(x, result);
  return result;
}

Gradients run_softmax_backward(const SoftmaxOperands& x, const SoftmaxResult& result, const Tensor& gradient,
                               Gradients gradients) {
  const Tensor g = make_features_contiguous(gradient);
  const Tensor gbias = gradients.size() > 3 ? gradients[3] : Tensor();
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    softmax_attention_backward(backend, get_shape_with_data(x), get_attention_rows<const T>(x.q),
                               get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                               get_rows_or_null<const Compute<T>>(x.bias), result.out.data<T>(),
                               result.log_sums.data<Compute<T>>(), get_attention_rows<const T>(g),
                               get_gradient_rows<T>(gradients), get_rows_or_null<Compute<T>>(gbias));
  });
  return gradients;
}

Tensor softmax_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const SoftmaxAttentionOptions& options) {
  SoftmaxOperands x = prepare_operands(query, key, value, options);
  if (x.shape.head_group == 1)
    if (const Tensor out = try_strided_attention(x.q, x.k, x.v, options, x.shape, softmax_attention);
        out.defined())
      return out;
  std::vector<Tensor> inputs{x.q, x.k, x.v};
  if (x.bias.defined()) inputs.push_back(x.bias);
  for (Tensor* input : {&x.q, &x.k, &x.v, &x.bias})
    if (input->defined()) *input = detach(*input);
  const SoftmaxResult result = run_softmax_forward(x);
  return record(kOp, result.out, inputs,
                [x, result = SoftmaxResult{detach(result.out), result.log_sums}](const Tensor& gradient,
                                                                                 NeededGradients needs) {
                  Gradients gradients = allocate_attention_gradients(needs, x.q, x.k, x.v);
                  if (x.bias.defined())
                    gradients.push_back(
                        needs[3] ? transpose(Tensor::zeros_like(transpose(x.bias, 1, 2)), 1, 2) : Tensor());
                  return run_softmax_backward(x, result, gradient, gradients);
                });
}

void softmax_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SoftmaxAttentionOptions& options, const AttentionResult& result) {
  const SoftmaxOperands x = prepare_operands(q, k, v, options);
  check_attention_result(kOp, result, q, v);
  run_forward(x, {result.out, result.statistics});
}

void softmax_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const SoftmaxAttentionOptions& options, const AttentionResult& result,
                                     const Tensor& gradient, const Gradients& gradients) {
  const SoftmaxOperands x = prepare_operands(q, k, v, options);
  check_attention_result(kOp, result, q, v);
  check_gradient(kOp, gradient, result.out);
  Gradients arranged = gradients;
  if (x.bias.defined()) {
    check_gradients(kOp, gradients, {&q, &k, &v, &options.bias});
    if (gradients[3].defined()) arranged[3] = transpose(gradients[3], 1, 2);
  } else {
    check_gradients(kOp, gradients, {&q, &k, &v});
  }
  run_softmax_backward(x, {result.out, result.statistics}, gradient, arranged);
}

double count_attended_pairs(const SoftmaxAttentionOptions& options, int64_t heads, int64_t length) {
  const KeyPattern pattern = with_key_blocks(options.pattern, options.key_blocks, heads, kCpu);
  const int64_t distinct_heads = pattern.differs_by_head() ? heads : 1;
  double pairs = 0;
  for (int64_t h = 0; h < distinct_heads; ++h) {
    const AttendedKeys attended{pattern.get_head_pattern(h), length, length, length, options.causal};
    for (int64_t i = 0; i < length; ++i)
      for (PositionRun run = attended.find_keys(i, i + 1, 0); !run.is_empty();
           run = attended.find_keys(i, i + 1, run.end))
        pairs += static_cast<double>(run.end - run.begin);
  }
  return pairs * static_cast<double>(heads) / static_cast<double>(distinct_heads);
}

KeyValueCache make_key_value_cache(const KeyValueCacheSize& size, DType dtype, Device device,
                                   const KeyPattern& pattern, const Tensor& key_blocks) {
  const auto make_rows = [&](int64_t width) {
    if (!pattern.has_only_window())
      return Tensor::empty({size.batch, size.capacity, size.key_heads, width}, dtype, device);
    return transpose(Tensor::empty({size.batch, size.key_heads, size.capacity, width}, dtype, device), 1, 2);
  };
  return {make_rows(size.dim), make_rows(size.value_dim), 0, pattern, key_blocks};
}

void append_tokens(const Tensor& k, const Tensor& v, KeyValueCache& cache) {
  const int64_t capacity = cache.keys.size(1), count = k.size(1), end = cache.length + count;
  check(end <= capacity || capacity >= cache.pattern.max_causal_key_count(), "append_tokens",
        "the cache is full: capacity ", capacity, ", length ", cache.length, ", tokens ", count);
  for (int64_t t = std::max<int64_t>(0, count - capacity), copied = 0; t < count; t += copied) {
    const int64_t slot = (cache.length + t) % capacity;
    copied = std::min(count - t, capacity - slot);
    slice(cache.keys, 1, slot, slot + copied).copy_from(slice(k, 1, t, t + copied));
    slice(cache.values, 1, slot, slot + copied).copy_from(slice(v, 1, t, t + copied));
  }
  cache.length = end;
}

void softmax_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache,
                            const Tensor& out, double scale) {
  check_attention_step(kSoftmaxStep, q, k, v, out, {.grouped_heads = true});
  const int64_t batch = q.size(0), heads = q.size(1), key_heads = k.size(1), dim = q.size(2),
                value_dim = v.size(2);
  check(q.dtype() != DType::bfloat16, kSoftmaxStep, "q, k and v must be float32 or float64, not bfloat16");
  const int64_t capacity = cache.keys.rank() == 4 ? cache.keys.size(1) : 0;
  check(cache.keys.shape() == Shape{batch, capacity, key_heads, dim} &&
            cache.values.shape() == Shape{batch, capacity, key_heads, value_dim} &&
            get_compute_dtype(cache.keys.dtype()) == q.dtype() &&
            cache.values.dtype() == cache.keys.dtype() && cache.keys.strides()[3] == 1 &&
            cache.values.strides()[3] == 1,
        kSoftmaxStep, "cache ", name_of(cache.keys.dtype()), " ", cache.keys.shape(), " and ",
        cache.values.shape(), " does not match k ", name_of(k.dtype()), " ", k.shape(), " and v ", v.shape());
  check_on_device_of_q(kSoftmaxStep, "the cache", {&cache.keys, &cache.values}, q);
  check(cache.length >= 0, kSoftmaxStep, "the length of the cache must not be negative, got ", cache.length);
  check(cache.length < capacity || capacity >= cache.pattern.max_causal_key_count(), kSoftmaxStep,
        "the cache is full: capacity ", capacity, ", length ", cache.length);
  ++cache.length;
  SoftmaxAttentionShape shape;
  shape.batch = batch;
  shape.query_length = 1;
  shape.key_length = cache.length;
  shape.heads = heads;
  shape.head_group = key_heads > 0 ? heads / key_heads : 1;
  shape.dim = dim;
  shape.value_dim = value_dim;
  shape.scale = scale_or_default(scale, dim);
  dispatch_floating(kSoftmaxStep, cache.keys, [&]<class Stored>(auto backend) {
    using T = Compute<Stored>;
    shape.pattern = with_key_blocks(cache.pattern, cache.key_blocks, heads, q.device());
    softmax_attention_step(backend, shape, get_attention_rows<const T>(q), get_attention_rows<const T>(k),
                           get_attention_rows<const T>(v), get_attention_rows<Stored>(cache.keys),
                           get_attention_rows<Stored>(cache.values), capacity, get_attention_rows<T>(out));
  });
}

}  // namespace tapeformer
