#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kSynthesizer = "synthesizer";

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Attention with learned scores (Tay et al. 2020, "Synthesizer"). For head h, the score of query i and key j
// is the sum of the terms that the option "terms" selects:
//   dot-product        q_i · k_j / √dim
//   dense              relu(q_i) · w_j
//   factorized-dense   (q_i A)[j / columns] (q_i B)[j mod columns]
//   random             R[h, i, j]
//   factorized-random  r_i · c_j
// q_i and k_j are the query and the key. The other tensors are learned, and each head has separate values:
// w_j (dim,), A (dim, rows), B (dim, columns), R (heads, length, length), r_i (rank,) and c_j (rank,). The
// dense term is a perceptron with two layers, and its first layer is the query projection.
class SynthesizerKind final : public Attention {
 public:
  SynthesizerKind(const OptionValues& options, const AttentionSetup& setup)
      : terms_(options.get<Names>("terms")), dropout_(setup.dropout) {
    const int64_t length = setup.max_length, heads = setup.heads, dim = setup.dim;
    const auto rank = options.get<int64_t>("rank");
    const auto inverse_root = [](int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); };
    if (contains(terms_, "dense"))
      add_parameter("dense", dense_, {length, heads, dim}, make_uniform_initializer(inverse_root(dim)));
    if (contains(terms_, "factorized-dense")) {
      const auto rows = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(length))));
      add_parameter("dense_rows", dense_rows_, {heads, dim, rows},
                    make_uniform_initializer(inverse_root(dim)));
      add_parameter("dense_columns", dense_columns_, {heads, dim, (length + rows - 1) / rows},
                    make_uniform_initializer(inverse_root(dim)));
    }
    const auto add_random = [&](const char* name, Tensor& tensor, const Shape& shape, double std) {
      if (options.get<bool>("train_random"))
        add_parameter(name, tensor, shape, make_normal_initializer(std));
      else
        add_state(name, tensor, shape, make_normal_initializer(std));
    };
    if (contains(terms_, "random")) add_random("random", random_, {heads, length, length}, 1);
    if (contains(terms_, "factorized-random")) {
      // With this standard deviation of the rows and columns, the scores have variance 1.
      const double std = std::pow(static_cast<double>(rank), -0.25);
      add_random("random_rows", random_rows_, {length, heads, rank}, std);
      add_random("random_columns", random_columns_, {length, heads, rank}, std);
    }
    if (random_.defined() || dense_rows_.defined()) {
      causal_ = make_causal_score_mask(length);
      add_buffer("causal", causal_);
    }
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(q.size(1) == v.size(1) && k.size(1) == v.size(1), kSynthesizer, "the lengths of queries ",
          q.shape(), " and values ", v.shape(),
          " differ, and scores are learned for the positions of one sequence");
    const Tensor queries = joined(query_features(q)), keys = joined(key_features(k));
    const Tensor full = full_scores(q);
    if (!full.defined()) {
      SoftmaxAttentionOptions options = make_softmax_attention_options(q, v, mask, dropout_, context, name);
      options.scale = 1;
      return softmax_attention(queries, keys, v, options);
    }
    const auto heads_first = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
    Tensor scores = full;
    if (queries.defined())
      scores = add(matmul(heads_first(queries), heads_first(keys), {.transpose_b = true}), full);
    const Tensor weights =
        dropout(softmax(masked(scores, mask, q)), make_weight_dropout_mask(q, v, dropout_, context, name));
    return contiguous(heads_first(matmul(weights, heads_first(v))));
  }

 private:
  // Returns the first `length` rows of a table (max_length, heads, features), repeated for each sequence of
  // `like` (batch, length, …).
  static Tensor rows_of(const Tensor& table, const Tensor& like) {
    const int64_t batch = like.size(0), length = like.size(1);
    return broadcast_to(slice(table, 0, 0, length), {batch, length, table.size(1), table.size(2)});
  }
  static Tensor joined(const std::vector<Tensor>& parts) {
    if (parts.empty()) return {};
    return parts.size() == 1 ? parts.front() : concat(parts, -1);
  }
  // Returns the query features of the terms "dot-product", "dense" and "factorized-random", in this order.
  // Each element is (batch, length, heads, features). Terms that are not in `terms_` are left out. The score
  // of a term is the dot product of its query features and its key features.
  std::vector<Tensor> query_features(const Tensor& q) const {
    std::vector<Tensor> parts;
    if (contains(terms_, "dot-product"))
      parts.push_back(mul(q, 1 / std::sqrt(static_cast<double>(q.size(3)))));
    if (dense_.defined()) parts.push_back(relu(q));
    if (random_rows_.defined()) parts.push_back(rows_of(random_rows_, q));
    return parts;
  }
  // Returns the key features of the terms whose query features query_features() returns, in the same order.
  std::vector<Tensor> key_features(const Tensor& k) const {
    std::vector<Tensor> parts;
    if (contains(terms_, "dot-product")) parts.push_back(k);
    if (dense_.defined()) parts.push_back(rows_of(dense_, k));
    if (random_columns_.defined()) parts.push_back(rows_of(random_columns_, k));
    return parts;
  }
  // Returns the sum of the terms "random" and "factorized-dense", (batch, heads, length, length). Returns an
  // undefined tensor if `terms_` contains neither of these two terms.
  Tensor full_scores(const Tensor& q) const {
    const int64_t batch = q.size(0), length = q.size(1), heads = q.size(2);
    Tensor scores;
    if (random_.defined())
      scores =
          broadcast_to(slice(slice(random_, 1, 0, length), 2, 0, length), {batch, heads, length, length});
    if (!dense_rows_.defined()) return scores;
    const Tensor queries = permute(q, {0, 2, 1, 3});
    const Tensor rows = matmul(queries, dense_rows_), columns = matmul(queries, dense_columns_);
    const int64_t a = rows.size(-1), b = columns.size(-1);
    const Tensor products =
        mul(reshape(rows, {batch, heads, length, a, 1}), reshape(columns, {batch, heads, length, 1, b}));
    const Tensor dense = slice(reshape(products, {batch, heads, length, a * b}), 3, 0, length);
    return scores.defined() ? add(scores, dense) : dense;
  }
  Tensor masked(Tensor scores, const AttentionMask& mask, const Tensor& q) const {
    const int64_t length = q.size(1);
    if (mask.causal) scores = add(scores, slice(slice(causal_, 0, 0, length), 1, 0, length));
    if (!mask.key_lengths.defined()) return scores;
    return add(scores,
               reshape(make_length_score_mask(mask.key_lengths, length, q), {q.size(0), 1, 1, length}));
  }

  Names terms_;
  double dropout_;
  Tensor dense_, dense_rows_, dense_columns_, random_, random_rows_, random_columns_;
  Tensor causal_;  // causal score mask, a buffer; defined only with "random" or "factorized-dense"
};

std::unique_ptr<Attention> make_synthesizer(const OptionValues& options, const AttentionSetup& setup) {
  const auto terms = options.get<Names>("terms");
  check(setup.max_length > 0, kSynthesizer, "the learned scores of positions need a maximum length");
  for (size_t i = 0; i < terms.size(); ++i)
    if (std::count(terms.begin(), terms.end(), terms[i]) > 1)
      throw OptionError("terms", "expected each term once, got \"" + terms[i] + "\" again");
  if (terms.empty()) throw OptionError("terms", "expected at least one term");
  return std::make_unique<SynthesizerKind>(options, setup);
}

UsedAttentionInputs select_synthesizer_inputs(const OptionValues& options) {
  const auto terms = options.get<Names>("terms");
  const bool keys = contains(terms, "dot-product");
  return {.use_queries = keys || contains(terms, "dense") || contains(terms, "factorized-dense"),
          .use_keys = keys};
}

}  // namespace

AttentionKind make_synthesizer_attention_kind() {
  return {
      .name = kSynthesizer,
      .help = "softmax attention with learned scores: a sum of dense, random and factorized terms",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths =
                           make_unsupported("scores are learned for the positions of one sequence"),
                       .recurrent = make_unsupported("only its parallel form is implemented"),
                       .weight_dropout = true,
                       .bfloat16 = make_unsupported("its learned scores are float32")},
      .options = {{.name = "terms",
                   .default_value = Names{"factorized-random"},
                   .help = "terms of the scores; several terms are added",
                   .choices = {"dense", "random", "factorized-dense", "factorized-random", "dot-product"}},
                  {.name = "rank",
                   .default_value = int64_t{8},
                   .help = "rank of factorized-random",
                   .min = 1,
                   .max = 1 << 16,
                   .used_if = {"terms", {"factorized-random"}}},
                  {.name = "train_random",
                   .default_value = true,
                   .help = "train random terms; false: they keep their initial values",
                   .used_if = {"terms", {"random", "factorized-random"}}}},
      .make = make_synthesizer,
      .select_inputs = select_synthesizer_inputs,
      // Counts the multiply-adds of the scores of each term and of the weighted sums. A query attends to half
      // of the keys on average.
      .count_multiply_adds = [](const OptionValues& options, const AttentionSize& size) {
        const auto length = static_cast<double>(size.length), dim = static_cast<double>(size.dim);
        double products = dim;
        for (const std::string& term : options.get<Names>("terms"))
          if (term == "factorized-random")
            products += static_cast<double>(options.get<int64_t>("rank"));
          else if (term != "random")
            products += term == "factorized-dense" ? 1 : dim;
        return products * 0.5 * length * length;
      }};
}

}  // namespace tapeformer
