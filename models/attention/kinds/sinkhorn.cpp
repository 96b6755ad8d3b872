#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "ops/elementwise.h"
#include "ops/gumbel.h"
#include "ops/lengths.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kSinkhorn = "sinkhorn";
constexpr double kMinMass = 1e-20;  // added to divisors and arguments of log(), which must be positive

struct SinkhornOptions {
  int64_t block = 0, iterations = 0;
  double temperature = 0;
};

// Attention of "Sparse Sinkhorn Attention" (Tay et al. 2020, section 3). A query attends, in one softmax, to
// the tokens of its block and to the tokens of a mixed block. A mixed block is a weighted sum of the blocks
// of the sequence. Each block of queries has a separate mixed block. A sorting network computes the matrix of
// weights, (blocks, blocks), from the mean key of each block.
class SinkhornKind final : public Attention {
 public:
  SinkhornKind(const SinkhornOptions& options, const AttentionSetup& setup)
      : options_(options), dropout_(setup.dropout) {
    check(setup.max_length > 0, kSinkhorn, "the sorting network needs a maximum length");
    const int64_t blocks = block_count(setup.max_length);
    const Initializer initializer = make_uniform_initializer(1 / std::sqrt(static_cast<double>(setup.dim)));
    add_parameter("sort_hidden", hidden_, {setup.heads, setup.dim, setup.dim}, initializer);
    add_parameter("sort_output", output_, {setup.heads, setup.dim, blocks}, initializer);
    causal_ = make_causal_score_mask(blocks);
    add_buffer("causal", causal_);
    counts_ = Tensor::empty({blocks, 1});
    for (int64_t i = 0; i < blocks; ++i)
      counts_.data<float>()[i] = static_cast<float>((i + 1) * options_.block + 1);
    add_buffer("counts", counts_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(q.size(1) == k.size(1), kSinkhorn, "the lengths of queries ", q.shape(), " and keys ", k.shape(),
          " differ, but they share the blocks of one sequence");
    check(block_count(q.size(1)) <= output_.size(2), kSinkhorn, "sequences of ", q.size(1),
          " tokens have more blocks than the maximum length allows, ", output_.size(2));
    if (!mask.causal) return to_all_blocks(q, k, v, mask, context, name);
    if (q.size(1) <= options_.block)
      return softmax_attention(q, k, v, make_softmax_attention_options(q, k, mask, dropout_, context, name));
    return to_earlier_blocks(q, k, v, context, name);
  }

 private:
  // Returns softmax attention within blocks. q, k and v are (batch * blocks, tokens, heads, dim).
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                const Tensor& bias, int64_t blocks, ForwardContext context, const std::string& name) const {
    context.first_example *= blocks;
    SoftmaxAttentionOptions options = make_softmax_attention_options(q, k, mask, dropout_, context, name);
    options.bias = bias;
    return softmax_attention(q, k, v, options);
  }

  // Returns attention without a causal mask, (batch, length, heads, dim). A token of a mixed block is a
  // weighted sum of tokens, some of which can be masked or padding. Let m be the share of the valid tokens in
  // the sum of the weights. Then log(m) is added to the score of the mixed token.
  Tensor to_all_blocks(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                       const ForwardContext& context, const std::string& name) const {
    const int64_t batch = q.size(0), length = q.size(1), blocks = block_count(length), block = options_.block;
    const Tensor lengths = prepare_lengths(kSinkhorn, "key length", mask.key_lengths, batch, length);
    const Tensor key_blocks = in_blocks(zero_masked_rows(k, mask)),
                 value_blocks = in_blocks(zero_masked_rows(v, mask));
    const Tensor means = mul(permute(sum(key_blocks, 2), {0, 2, 1, 3}), 1 / static_cast<double>(block));
    const Tensor order = balanced(sort_scores(means, context, name), mask, lengths);
    Tensor bias, key_lengths;
    if (mask.key_lengths.defined() || length % block != 0) {
      const Tensor all = Tensor::full({batch, length, 1, 1}, 1, q.dtype(), q.device());
      const Tensor valid = reshape(in_blocks(zero_masked_rows(all, mask)), {batch, 1, blocks, block});
      const Tensor mass = div(matmul(order, valid), add(sum(order, 3, true), kMinMass));
      const Tensor score = permute(log(add(mass, kMinMass)), {0, 2, 1, 3});
      bias = broadcast_to(reshape(pad(score, 3, 0, block), {batch * blocks, q.size(2), 1, 2 * block}),
                          {batch * blocks, q.size(2), block, 2 * block});
      key_lengths = Tensor::empty({batch * blocks}, DType::int64);
      for (int64_t i = 0; i < batch * blocks; ++i)
        key_lengths.data<int64_t>()[i] =
            block + std::clamp<int64_t>(lengths.data<int64_t>()[i / blocks] - i % blocks * block, 0, block);
    }
    const AttentionMask masked{.causal = false, .key_lengths = key_lengths};
    const Tensor out = attend(joined(in_blocks(q)), with_mixed(order, key_blocks),
                              with_mixed(order, value_blocks), masked, bias, blocks, context, name);
    return contiguous(slice(reshape(out, {batch, blocks * block, q.size(2), v.size(3)}), 1, 0, length));
  }

  // Returns attention with a causal mask, (batch, length, heads, dim). The queries of the first block attend
  // only to their block. The queries of a later block also attend to a mixed block, which is a weighted sum
  // of the earlier blocks. The weights depend only on tokens up to the first token of the block of the
  // queries. The weights are normalised over the earlier blocks by a softmax, because Sinkhorn iterations
  // would also use later blocks.
  Tensor to_earlier_blocks(const Tensor& q, const Tensor& k, const Tensor& v, const ForwardContext& context,
                           const std::string& name) const {
    const int64_t batch = q.size(0), length = q.size(1), block = options_.block;
    const int64_t rows = block_count(length) - 1;
    const auto first = [&](const Tensor& x) { return slice(x, 1, 0, block); };
    const AttentionMask causal{.causal = true, .key_lengths = {}};
    const Tensor key_blocks = in_blocks(k), value_blocks = in_blocks(v);
    const auto earlier = [&](const Tensor& x) { return slice(x, 1, 0, rows); };
    const auto later = [&](const Tensor& x) { return slice(x, 1, 1, rows + 1); };
    // Row r of `block_mask` (rows, rows) is the mask for the queries of block r + 1. The elements of row r
    // are 0 for the blocks 0 to r and -inf for later blocks.
    const Tensor block_mask = slice(slice(causal_, 0, 0, rows), 1, 0, rows);
    const Tensor sums = matmul(exp(block_mask), permute(sum(earlier(key_blocks), 2), {0, 2, 1, 3}));
    const Tensor first_keys = permute(sum(slice(later(key_blocks), 2, 0, 1), 2), {0, 2, 1, 3});
    const Tensor means = div(add(sums, first_keys), slice(counts_, 0, 0, rows));
    const Tensor order = softmax(add(sort_scores(means, context, name), block_mask));
    const auto keys_of = [&](const Tensor& x) {
      return concat({mixed_blocks(order, earlier(x)), joined(later(x))}, 1);
    };
    const Tensor start = attend(first(q), first(k), first(v), causal, {}, 1, context, name + ".first_block");
    const Tensor rest = attend(joined(later(in_blocks(q))), keys_of(key_blocks), keys_of(value_blocks),
                               causal, {}, rows, context, name);
    const Tensor all = concat({start, reshape(rest, {batch, rows * block, q.size(2), v.size(3)})}, 1);
    return contiguous(slice(all, 1, 0, length));
  }

  // Returns the scores of the sorting network, (batch, heads, blocks, blocks). `means` (batch, heads, blocks,
  // dim) contains means of keys. In training, adds Gumbel noise to the scores. Divides the scores by the
  // temperature.
  Tensor sort_scores(const Tensor& means, const ForwardContext& context, const std::string& name) const {
    const int64_t blocks = means.size(2);
    Tensor scores = matmul(relu(matmul(means, hidden_)), slice(output_, 2, 0, blocks));
    if (context.training)
      scores = add_gumbel_noise(scores, RandomStream(context.seed, name + ".gumbel", context.step),
                                context.first_example * means.size(1) * blocks * blocks);
    return mul(scores, 1 / options_.temperature);
  }
  // Returns exp(scores) with normalised rows and columns. Each iteration normalises the rows and then the
  // columns. The rows and columns of masked blocks are 0.
  Tensor balanced(Tensor scores, const AttentionMask& mask, const Tensor& lengths) const {
    const int64_t batch = scores.size(0), blocks = scores.size(3);
    if (mask.key_lengths.defined()) {
      const Tensor valid_blocks = Tensor::empty({batch}, DType::int64);
      for (int64_t b = 0; b < batch; ++b)
        valid_blocks.data<int64_t>()[b] = block_count(lengths.data<int64_t>()[b]);
      const Tensor valid = make_length_score_mask(valid_blocks, blocks, scores);
      scores = add(add(scores, reshape(valid, {batch, 1, 1, blocks})), reshape(valid, {batch, 1, blocks, 1}));
    }
    for (int64_t i = 0; i < options_.iterations; ++i)
      scores = transpose(log_softmax(transpose(log_softmax(scores), 2, 3)), 2, 3);
    return exp(scores);
  }

  int64_t block_count(int64_t length) const { return (length + options_.block - 1) / options_.block; }
  Tensor in_blocks(const Tensor& x) const { return split_into_blocks(x, 1, options_.block); }
  // Returns blocks (batch, blocks, block, heads, dim) as (batch * blocks, block, heads, dim).
  static Tensor joined(const Tensor& blocks) {
    return reshape(blocks, {blocks.size(0) * blocks.size(1), blocks.size(2), blocks.size(3), blocks.size(4)});
  }
  // Returns one mixed block for each row of `order`, (batch * rows, block, heads, dim). `order` (batch,
  // heads, rows, blocks) contains the weights of the blocks in each mixed block.
  static Tensor mixed_blocks(const Tensor& order, const Tensor& blocks) {
    const int64_t batch = blocks.size(0), count = blocks.size(1), block = blocks.size(2);
    const int64_t heads = blocks.size(3), dim = blocks.size(4), rows = order.size(2);
    const Tensor tokens = reshape(permute(blocks, {0, 3, 1, 2, 4}), {batch, heads, count, block * dim});
    const Tensor mixed = reshape(matmul(order, tokens), {batch, heads, rows, block, dim});
    return reshape(permute(mixed, {0, 2, 3, 1, 4}), {batch * rows, block, heads, dim});
  }
  // For every block, returns the mixed block followed by the block itself, (batch * blocks, 2 * block, heads,
  // dim).
  static Tensor with_mixed(const Tensor& order, const Tensor& blocks) {
    return concat({mixed_blocks(order, blocks), joined(blocks)}, 1);
  }

  SinkhornOptions options_;
  double dropout_;
  Tensor hidden_, output_;  // weights of the sorting network, (heads, dim, dim) and (heads, dim, blocks)
  // Constants for causal attention. causal_ (blocks, blocks) is the result of make_causal_score_mask(). For
  // the queries of block i + 1, the sorting network reads the mean of the keys of blocks 0 to i and of the
  // first key of block i + 1. counts_ (blocks, 1) contains the number of these keys in row i.
  Tensor causal_, counts_;
};

}  // namespace

AttentionKind make_sinkhorn_attention_kind() {
  return {.name = kSinkhorn,
          .help =
              "Sparse Sinkhorn attention: softmax attention to the own block and to a learned mixture of "
              "blocks",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .unequal_lengths =
                               make_unsupported("queries and keys share the blocks of one sequence"),
                           .recurrent = make_unsupported("only its parallel form is implemented"),
                           .weight_dropout = true,
                           .bfloat16 = make_unsupported("its sorting network is float32")},
          .options = {{.name = "block",
                       .default_value = int64_t{128},
                       .help = "tokens of a block",
                       .min = 1,
                       .max = 1 << 20},
                      {.name = "iterations",
                       .default_value = int64_t{8},
                       .help = "normalisations of rows and columns; causal attention normalises rows once",
                       .min = 1,
                       .max = 1000},
                      {.name = "temperature",
                       .default_value = 0.75,
                       .help = "divisor of the scores of blocks; a low temperature selects single blocks",
                       .min = 1e-3,
                       .max = 1e3}},
          .make = [](const OptionValues& values, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            return std::make_unique<SinkhornKind>(
                SinkhornOptions{values.get<int64_t>("block"), values.get<int64_t>("iterations"),
                                values.get<double>("temperature")},
                setup);
          },
          .check_length = [](const OptionValues& values,
                             int64_t length) { check_option_at_most_length(values, "block", length); },
          // Counts the attention of a query to the mixed block and, on average, to half of its own block.
          // Also counts the matrix products that compute mixed blocks.
          .count_multiply_adds =
              [](const OptionValues& values, const AttentionSize& size) {
                const auto block = static_cast<double>(values.get<int64_t>("block"));
                const auto length = static_cast<double>(size.length);
                return count_sparse_attention_multiply_adds(1.5 * block, size) +
                       static_cast<double>(size.dim) * length * length / block;
              },
          .test_options = {{"block", int64_t{2}}}};
}

}  // namespace tapeformer
