#include "ops/softmax_attention.h"

#include <cmath>
#include <limits>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
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

SoftmaxAttentionShape make_shape(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const SoftmaxAttentionOptions& options) {
  auto shape = make_attention_shape<SoftmaxAttentionShape>(q, k, v);
  shape.causal = options.causal;
  shape.pattern = options.pattern;
  shape.scale = scale_or_default(options.scale, q.size(3));
  shape.dropout = {options.dropout, options.dropout_stream, options.dropout_offset};
  return shape;
}

void check_dropout(double p) {
  check(p >= 0 && p < 1, kOp, "dropout must be in [0, 1), not ", p);
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

// Returns the mask (batch or 1, heads or 1, query_length, key_length) to add to the scores: 0 if a query
// attends to a key, otherwise -inf.
Tensor make_additive_mask(const Tensor& key_lengths, const SoftmaxAttentionOptions& options, const Tensor& q,
                          const Tensor& k) {
  const KeyPattern pattern = with_key_blocks(options.pattern, options.key_blocks, q.size(2), q.device());
  const int64_t batch = key_lengths.defined() ? q.size(0) : 1;
  const int64_t heads = pattern.differs_by_head() ? q.size(2) : 1;
  const Tensor mask = Tensor::zeros({batch, heads, q.size(1), k.size(1)}, DType::float64);
  double* element = mask.data<double>();
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t h = 0; h < heads; ++h) {
      const AttendedKeys attended{pattern.get_head_pattern(h), q.size(1), k.size(1),
                                  key_lengths.defined() ? key_lengths.data<int64_t>()[n] : k.size(1),
                                  options.causal};
      for (int64_t i = 0; i < q.size(1); ++i)
        for (int64_t j = 0; j < k.size(1); ++j, ++element)
          if (!attended.contains(i, j)) *element = -std::numeric_limits<double>::infinity();
    }
  return mask.to(q.dtype());
}

// The inputs of the kernels, which are kept for the backward pass.
struct SoftmaxOperands {
  Tensor q, k, v, key_lengths, key_blocks;
  SoftmaxAttentionShape shape;
  Tensor bias = {};  // the result of prepare_bias()

  // Returns a copy of `shape` with pointers to the data of key_lengths and key_blocks. Call this function
  // inside dispatch_floating(), because Tensor::data() throws if a tensor is not on current_device.
  SoftmaxAttentionShape shape_with_data() const {
    SoftmaxAttentionShape s = with_key_lengths(shape, key_lengths);
    s.pattern = with_key_blocks(s.pattern, key_blocks, s.heads, q.device());
    return s;
  }
};

// The result of attention, and the log-sum-exp of the scores of each query.
struct SoftmaxResult {
  Tensor out, log_sums;
};

template <class T>
AttentionRows<T> get_rows_or_null(const Tensor& x) {
  return x.defined() ? get_attention_rows<T>(x) : AttentionRows<T>{};
}

SoftmaxResult run_forward(const SoftmaxOperands& x) {
  const SoftmaxResult result{allocate_attention_result(x.q, x.v), allocate_query_statistics(x.q)};
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    softmax_attention_forward(backend, x.shape_with_data(), get_attention_rows<const T>(x.q),
                              get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                              get_rows_or_null<const Compute<T>>(x.bias), result.out.data<T>(),
                              result.log_sums.data<Compute<T>>());
  });
  return result;
}

// Computes the gradients of q, k, v and of the bias, which are tensors of the list `gradients`. Undefined
// gradients are not computed. `result` is the attention to all keys. If x contains only some of the keys, the
// gradient of q contains only the contribution of the keys in x.
Gradients run_backward(const SoftmaxOperands& x, const SoftmaxResult& result, const Tensor& gradient,
                       Gradients gradients) {
  const Tensor g = make_features_contiguous(gradient);
  const Tensor gbias = gradients.size() > 3 ? gradients[3] : Tensor();
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    softmax_attention_backward(backend, x.shape_with_data(), get_attention_rows<const T>(x.q),
                               get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                               get_rows_or_null<const Compute<T>>(x.bias), result.out.data<T>(),
                               result.log_sums.data<Compute<T>>(), get_attention_rows<const T>(g),
                               get_gradient_rows<T>(gradients), get_rows_or_null<Compute<T>>(gbias));
  });
  return gradients;
}

// Divides a sequence into `step` subsequences. Subsequence s contains the tokens s, s + step, s + 2 step, …
struct Subsequences {
  int64_t step, length;

  int64_t tokens() const { return (length + step - 1) / step; }
  // Returns x (batch, length, heads, dim) as (batch * step, tokens, heads, dim), padded with zeros.
  Tensor split(const Tensor& x) const {
    const Tensor grid = permute(split_into_blocks(x, 1, step), {0, 2, 1, 3, 4});
    return reshape(grid, {x.size(0) * step, tokens(), x.size(2), x.size(3)});
  }
  // Reverses split(): returns the tokens in their original order, without the padding.
  Tensor join(const Tensor& x) const {
    const int64_t batch = x.size(0) / step, heads = x.size(2), dim = x.size(3);
    const Tensor grid = permute(reshape(x, {batch, step, tokens(), heads, dim}), {0, 2, 1, 3, 4});
    return contiguous(slice(reshape(grid, {batch, tokens() * step, heads, dim}), 1, 0, length));
  }
  // split_sums() and join_sums() apply split() and join() to a tensor (batch, heads, length) with one number
  // per query and head.
  Tensor split_sums(const Tensor& sums) const { return per_head(split(per_token(sums))); }
  Tensor join_sums(const Tensor& sums) const { return per_head(join(per_token(sums))); }

  // per_token() converts a tensor (batch, heads, length) to (batch, length, heads, 1), and per_head() does
  // the reverse.
  static Tensor per_token(const Tensor& sums) {
    return reshape(transpose(sums, 1, 2), {sums.size(0), sums.size(2), sums.size(1), 1});
  }
  static Tensor per_head(const Tensor& rows) {
    return contiguous(transpose(reshape(rows, {rows.size(0), rows.size(1), rows.size(2)}), 1, 2));
  }
};

// Returns whether each query attends to all keys at distances that are multiples of pattern.dilated.step, and
// to no other keys. Returns false for dropout, which depends on positions in the whole sequence.
bool is_interleaved(const SoftmaxAttentionOptions& options, const Tensor& q) {
  const KeyPattern& pattern = options.pattern;
  KeyPattern rest = pattern;
  rest.dilated = {};
  const int64_t step = pattern.dilated.step;
  return options.dropout == 0 && !options.key_blocks.defined() && !options.bias.defined() &&
         !pattern.alternate_heads && rest.has_only_window() && WindowKeys{pattern.window}.is_empty() &&
         step > 0 && step < q.size(1) && pattern.dilated.before >= KeyWindow::kUnlimited &&
         (options.causal || pattern.dilated.after >= KeyWindow::kUnlimited);
}

// Computes softmax_attention() for options that is_interleaved() accepts. Divides the sequence into
// subsequences, and computes softmax attention within each subsequence.
Tensor compute_interleaved_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const SoftmaxAttentionOptions& options) {
  const int64_t batch = q.size(0), length = q.size(1), step = options.pattern.dilated.step;
  const Subsequences order{step, length};
  SoftmaxAttentionOptions own{.causal = options.causal, .scale = options.scale};
  const Tensor lengths = prepare_key_lengths(kOp, options.key_lengths, k);
  if (lengths.defined() || (!options.causal && length % step != 0)) {
    own.key_lengths = Tensor::empty({batch * step}, DType::int64);
    for (int64_t i = 0; i < batch * step; ++i) {
      const int64_t valid = lengths.defined() ? lengths.data<int64_t>()[i / step] : length;
      own.key_lengths.data<int64_t>()[i] = (valid + step - 1 - i % step) / step;
    }
  }
  return order.join(softmax_attention(order.split(q), order.split(k), order.split(v), own));
}

// Returns whether compute_strided_attention() supports the options. The pattern must consist of a window of
// at most `step` tokens, and of the keys at all distances that are multiples of `step`.
bool is_strided(const SoftmaxAttentionOptions& options, const Tensor& q) {
  const KeyPattern& pattern = options.pattern;
  KeyPattern rest = pattern;
  rest.dilated = {};
  return options.causal && !options.key_lengths.defined() && options.dropout == 0 &&
         !options.key_blocks.defined() && !options.bias.defined() && rest.has_only_window() &&
         pattern.window.block_size == 1 && pattern.window.before < pattern.dilated.step &&
         pattern.dilated.step < q.size(1) && pattern.dilated.before >= KeyWindow::kUnlimited &&
         (!pattern.alternate_heads || q.size(2) % 2 == 0);
}

// Attention to a strided pattern. The result of a query is a weighted mean of the attention to two sets of
// keys: the keys in the window of the query, and the earlier keys in the subsequence of the query. The weight
// of a set is the sum of exp(score) over the keys of the set.
class StridedAttention {
 public:
  explicit StridedAttention(const SoftmaxOperands& operands)
      : near_(operands), order_{operands.shape.pattern.dilated.step, operands.q.size(1)} {
    near_.shape.pattern = {.window = operands.shape.pattern.window};
  }
  SoftmaxResult forward() const {
    const SoftmaxResult near = run_forward(near_), far = run_forward(make_far_operands());
    const Tensor difference = sub(order_.join_sums(far.log_sums), near.log_sums);
    const DType dtype = difference.dtype();
    const Tensor base = cast(near.out, dtype), other = cast(order_.join(far.out), dtype);
    const Tensor far_weight = Subsequences::per_token(sigmoid(difference));
    return {cast(add(base, mul(far_weight, sub(other, base))), near.out.dtype()),
            add(near.log_sums, softplus(difference))};
  }
  Gradients backward(const SoftmaxResult& result, const Tensor& g) const {
    const SoftmaxOperands far_operands = make_far_operands();
    const Gradients near = run_backward(near_, result, g, allocate_all(near_));
    const Gradients far =
        run_backward(far_operands, {order_.split(result.out), order_.split_sums(result.log_sums)},
                     order_.split(g), allocate_all(far_operands));
    Gradients sums;
    const DType stored = g.dtype(), dtype = get_compute_dtype(stored);
    for (size_t i = 0; i < near.size(); ++i)
      sums.push_back(cast(add(cast(near[i], dtype), cast(order_.join(far[i]), dtype)), stored));
    return sums;
  }

 private:
  // Returns the operands of the attention to the earlier tokens of each subsequence.
  SoftmaxOperands make_far_operands() const {
    SoftmaxOperands far{
        order_.split(near_.q), order_.split(near_.k), order_.split(near_.v), {}, {}, near_.shape};
    far.shape.pattern = {.window = {.block_size = 1, .before = KeyWindow::kUnlimited, .after = -1}};
    far.shape.batch = far.q.size(0);
    far.shape.query_length = far.shape.key_length = order_.tokens();
    return far;
  }
  static Gradients allocate_all(const SoftmaxOperands& x) {
    return {Tensor::empty_like(x.q), Tensor::empty_like(x.k), Tensor::empty_like(x.v)};
  }

  SoftmaxOperands near_;
  Subsequences order_;
};

// Returns every second head of x (batch, length, heads, dim). If `first` is 0, returns the heads with even
// indices. If `first` is 1, returns the heads with odd indices.
Tensor select_every_second_head(const Tensor& x, int64_t first) {
  const int64_t batch = x.size(0), length = x.size(1), heads = x.size(2) / 2, dim = x.size(3);
  const Tensor pairs = reshape(x, {batch, length, heads, 2, dim});
  return reshape(slice(pairs, 3, first, first + 1), {batch, length, heads, dim});
}

// Computes softmax_attention() for options that is_strided() accepts. If pattern.alternate_heads is true,
// computes the heads with even indices and the heads with odd indices in separate calls of
// softmax_attention(). Otherwise uses StridedAttention.
Tensor compute_strided_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const SoftmaxAttentionOptions& options) {
  if (options.pattern.alternate_heads) {
    const auto part = [&](int64_t head) {
      SoftmaxAttentionOptions own = options;
      own.pattern = options.pattern.get_head_pattern(head);
      own.pattern.alternate_heads = false;
      return softmax_attention(select_every_second_head(q, head), select_every_second_head(k, head),
                               select_every_second_head(v, head), own);
    };
    return reshape(stack({part(0), part(1)}, 3), {q.size(0), q.size(1), q.size(2), v.size(3)});
  }
  const StridedAttention attention({detach(q), detach(k), detach(v), {}, {}, make_shape(q, k, v, options)});
  const SoftmaxResult result = attention.forward();
  return record(
      kOp, result.out, {&q, &k, &v},
      [attention, result = SoftmaxResult{detach(result.out), result.log_sums}](
          const Tensor& gradient, NeededGradients) { return attention.backward(result, gradient); });
}

}  // namespace

Tensor softmax_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                         const SoftmaxAttentionOptions& options) {
  check_attention_inputs(kOp, query, key, value);
  check_dropout(options.dropout);
  check_pattern(options, query, key);
  const Tensor q = make_features_contiguous(query), k = make_features_contiguous(key),
               v = make_features_contiguous(value);
  if (is_interleaved(options, q)) return compute_interleaved_attention(q, k, v, options);
  if (is_strided(options, q)) return compute_strided_attention(q, k, v, options);
  std::vector<Tensor> inputs{q, k, v};
  SoftmaxOperands operands{detach(q),          detach(k),
                           detach(v),          prepare_key_lengths(kOp, options.key_lengths, key),
                           options.key_blocks, make_shape(q, k, v, options)};
  if (const Tensor bias = prepare_bias(options, q, k); bias.defined()) {
    inputs.push_back(bias);
    operands.bias = detach(bias);
  }
  const SoftmaxResult result = run_forward(operands);
  return record(kOp, result.out, inputs,
                [x = operands, result = SoftmaxResult{detach(result.out), result.log_sums}](
                    const Tensor& gradient, NeededGradients needs) {
                  Gradients gradients = allocate_attention_gradients(needs, x.q, x.k, x.v);
                  if (x.bias.defined())
                    gradients.push_back(
                        needs[3] ? transpose(Tensor::zeros_like(transpose(x.bias, 1, 2)), 1, 2) : Tensor());
                  return run_backward(x, result, gradient, gradients);
                });
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

Tensor naive_softmax_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                               const SoftmaxAttentionOptions& options) {
  check_attention_inputs("naive_softmax_attention", query, key, value);
  check_dropout(options.dropout);
  check_pattern(options, query, key);
  const Tensor lengths = prepare_key_lengths("naive_softmax_attention", options.key_lengths, key);
  const Shape heads_first{0, 2, 1, 3};
  const Tensor q = permute(query, heads_first), k = permute(key, heads_first),
               v = permute(value, heads_first);
  if (key.size(1) == 0)
    return Tensor::zeros({query.size(0), query.size(1), query.size(2), value.size(3)}, query.dtype(),
                         query.device());
  Tensor scores = mul(matmul(q, k, {.transpose_b = true}), scale_or_default(options.scale, query.size(3)));
  if (options.causal || lengths.defined() || options.pattern.is_limited())
    scores = add(scores, make_additive_mask(lengths, options, query, key));
  if (options.bias.defined()) scores = add(scores, options.bias);
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
  check(cache.length < capacity || capacity >= cache.pattern.max_causal_key_count(), kStep,
        "the cache is full: capacity ", capacity, ", length ", cache.length);
  ++cache.length;
  SoftmaxAttentionShape shape;
  shape.batch = batch;
  shape.query_length = 1;
  shape.key_length = cache.length;
  shape.heads = heads;
  shape.dim = dim;
  shape.value_dim = value_dim;
  shape.scale = scale_or_default(scale, dim);
  dispatch_float_or_double(kStep, q, [&]<class T>(auto backend) {
    shape.pattern = with_key_blocks(cache.pattern, cache.key_blocks, heads, q.device());
    softmax_attention_step(backend, shape, get_attention_rows<const T>(q), get_attention_rows<const T>(k),
                           get_attention_rows<const T>(v), get_attention_rows<T>(cache.keys),
                           get_attention_rows<T>(cache.values), capacity, get_attention_rows<T>(out));
  });
}

}  // namespace tapeformer
