#include "ops/detail/strided_attention.h"

#include "ops/detail/attention_inputs.h"
#include "ops/detail/softmax_operands.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kStrided = "softmax_attention";

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
                                     const SoftmaxAttentionOptions& options, SoftmaxAttentionOp attend) {
  const int64_t batch = q.size(0), length = q.size(1), step = options.pattern.dilated.step;
  const Subsequences order{step, length};
  SoftmaxAttentionOptions own{.causal = options.causal, .scale = options.scale};
  const Tensor lengths = prepare_key_lengths(kStrided, options.key_lengths, k);
  if (lengths.defined() || (!options.causal && length % step != 0)) {
    own.key_lengths = Tensor::empty({batch * step}, DType::int64);
    for (int64_t i = 0; i < batch * step; ++i) {
      const int64_t valid = lengths.defined() ? lengths.data<int64_t>()[i / step] : length;
      own.key_lengths.data<int64_t>()[i] = (valid + step - 1 - i % step) / step;
    }
  }
  return order.join(attend(order.split(q), order.split(k), order.split(v), own));
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
    const SoftmaxResult near = run_softmax_forward(near_), far = run_softmax_forward(make_far_operands());
    const Tensor difference = sub(order_.join_sums(far.log_sums), near.log_sums);
    const DType dtype = difference.dtype();
    const Tensor base = cast(near.out, dtype), other = cast(order_.join(far.out), dtype);
    const Tensor far_weight = Subsequences::per_token(sigmoid(difference));
    return {cast(add(base, mul(far_weight, sub(other, base))), near.out.dtype()),
            add(near.log_sums, softplus(difference))};
  }
  Gradients backward(const SoftmaxResult& result, const Tensor& g) const {
    const SoftmaxOperands far_operands = make_far_operands();
    const Gradients near = run_softmax_backward(near_, result, g, allocate_all(near_));
    const Gradients far =
        run_softmax_backward(far_operands, {order_.split(result.out), order_.split_sums(result.log_sums)},
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
                                 const SoftmaxAttentionOptions& options, const SoftmaxAttentionShape& shape,
                                 SoftmaxAttentionOp attend) {
  if (options.pattern.alternate_heads) {
    const auto part = [&](int64_t head) {
      SoftmaxAttentionOptions own = options;
      own.pattern = options.pattern.get_head_pattern(head);
      own.pattern.alternate_heads = false;
      return attend(select_every_second_head(q, head), select_every_second_head(k, head),
                    select_every_second_head(v, head), own);
    };
    return reshape(stack({part(0), part(1)}, 3), {q.size(0), q.size(1), q.size(2), v.size(3)});
  }
  const StridedAttention attention({detach(q), detach(k), detach(v), {}, {}, shape});
  const SoftmaxResult result = attention.forward();
  return record(
      kStrided, result.out, {&q, &k, &v},
      [attention, result = SoftmaxResult{detach(result.out), result.log_sums}](
          const Tensor& gradient, NeededGradients) { return attention.backward(result, gradient); });
}

}  // namespace

Tensor try_strided_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                             const SoftmaxAttentionOptions& options, const SoftmaxAttentionShape& shape,
                             SoftmaxAttentionOp attend) {
  if (is_interleaved(options, q)) return compute_interleaved_attention(q, k, v, options, attend);
  if (is_strided(options, q)) return compute_strided_attention(q, k, v, options, shape, attend);
  return {};
}

}  // namespace tapeformer
