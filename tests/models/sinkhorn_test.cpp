// Tests that compare Sinkhorn attention with a direct computation, and tests of its special cases.
#include <doctest/doctest.h>

#include <cmath>

#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/gumbel.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kSinkhornHeads = 2, kSinkhornDim = 4, kSinkhornMax = 24;
constexpr double kSinkhornTemperature = 0.75;

struct SinkhornInputs {
  explicit SinkhornInputs(int64_t length, int64_t batch = 2)
      : q(normal({batch, length, kSinkhornHeads, kSinkhornDim}, 1)),
        k(normal({batch, length, kSinkhornHeads, kSinkhornDim}, 2)),
        v(normal({batch, length, kSinkhornHeads, kSinkhornDim}, 3)) {}
  Tensor q, k, v;
};

std::unique_ptr<Attention> make_sinkhorn(int64_t block, int64_t iterations = 8,
                                         double temperature = kSinkhornTemperature) {
  const auto options =
      find_attention_kind("sinkhorn")
          .make_options({{"block", block}, {"iterations", iterations}, {"temperature", temperature}});
  auto attention = make_attention("sinkhorn", options,
                                  {.heads = kSinkhornHeads, .dim = kSinkhornDim, .max_length = kSinkhornMax});
  attention->initialize(1);
  attention->convert(DType::float64);
  return attention;
}

Tensor run_sinkhorn(const Attention& attention, const SinkhornInputs& in, const AttentionMask& mask,
                    const ForwardContext& context = {}) {
  return attention.forward(in.q, in.k, in.v, mask, context, "layers.0");
}

AttentionMask sinkhorn_mask(bool causal, const Tensor& lengths = {}) {
  return {.causal = causal, .key_lengths = lengths};
}

Tensor sinkhorn_weight(const Attention& attention, const std::string& name) {
  for (const auto& [found, tensor] : attention.saved_tensors())
    if (found == name) return tensor;
  FAIL("no parameter " << name);
  return {};
}

struct Matrix {
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count), columns(column_count), values(static_cast<size_t>(row_count * column_count)) {}
  double& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  int64_t rows, columns;
  std::vector<double> values;
};

// A direct computation of Sinkhorn attention for one head of one sequence with `valid` tokens.
class SinkhornReference {
 public:
  SinkhornReference(const Attention& attention, const SinkhornInputs& in, int64_t example, int64_t head,
                    int64_t valid, int64_t block, int64_t iterations, bool causal)
      : in_(in),
        hidden_weight_(sinkhorn_weight(attention, "sort_hidden")),
        output_weight_(sinkhorn_weight(attention, "sort_output")),
        example_(example),
        head_(head),
        valid_(valid),
        block_(block),
        iterations_(iterations),
        blocks_((valid + block - 1) / block),
        causal_(causal),
        order(causal ? causal_order() : balanced_order()) {}

  // Returns the result (dim) of query i.
  std::vector<double> result(int64_t i) {
    std::vector<double> out(kSinkhornDim, 0.0);
    const int64_t own_block = i / block_;
    double total = 0;
    // Adds a key whose softmax weight before normalization is `factor` * exp(q . key / sqrt(kSinkhornDim)).
    const auto add_key = [&](const auto& key, const auto& value, double factor) {
      double score = 0;
      for (int64_t d = 0; d < kSinkhornDim; ++d) score += at(in_.q, i, d) * key(d);
      const double weight = factor * std::exp(score / std::sqrt(static_cast<double>(kSinkhornDim)));
      total += weight;
      for (int64_t d = 0; d < kSinkhornDim; ++d) out[static_cast<size_t>(d)] += weight * value(d);
    };
    const int64_t last = causal_ ? i : std::min(valid_, (own_block + 1) * block_) - 1;
    for (int64_t j = own_block * block_; j <= last; ++j)
      add_key([&](int64_t d) { return at(in_.k, j, d); }, [&](int64_t d) { return at(in_.v, j, d); }, 1);
    for (int64_t t = 0; t < block_ && !(causal_ && own_block == 0); ++t) {
      const auto mixed = [&](const Tensor& x, int64_t d) {
        double sum = 0;
        for (int64_t b = 0; b < blocks_; ++b)
          if (b * block_ + t < valid_) sum += order(own_block, b) * at(x, b * block_ + t, d);
        return sum;
      };
      double mass = 0, row = 0;
      for (int64_t b = 0; b < blocks_; ++b) {
        row += order(own_block, b);
        if (b * block_ + t < valid_) mass += order(own_block, b);
      }
      if (mass > 0)
        add_key([&](int64_t d) { return mixed(in_.k, d); }, [&](int64_t d) { return mixed(in_.v, d); },
                mass / row);
    }
    for (double& x : out) x /= total;
    return out;
  }

 private:
  double at(const Tensor& x, int64_t i, int64_t d) const {
    return x.data<double>()[((example_ * x.size(1) + i) * kSinkhornHeads + head_) * kSinkhornDim + d];
  }
  // Returns the score of block `column`, computed by a network with one hidden layer. The input of the
  // network is the sum of the valid keys in [begin, end), divided by `count`.
  double score(int64_t begin, int64_t end, int64_t count, int64_t column) const {
    double total = 0;
    for (int64_t h = 0; h < kSinkhornDim; ++h) {
      double unit = 0;
      for (int64_t d = 0; d < kSinkhornDim; ++d)
        for (int64_t j = begin; j < std::min(end, valid_); ++j)
          unit += at(in_.k, j, d) / static_cast<double>(count) *
                  hidden_weight_.data<double>()[(head_ * kSinkhornDim + d) * kSinkhornDim + h];
      total += std::max(unit, 0.0) *
               output_weight_.data<double>()[(head_ * kSinkhornDim + h) * output_weight_.size(2) + column];
    }
    return total / kSinkhornTemperature;
  }
  Matrix causal_order() const {
    Matrix s(blocks_, blocks_);
    for (int64_t i = 1; i < blocks_; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < i; ++j) sum += s(i, j) = std::exp(score(0, i * block_ + 1, i * block_ + 1, j));
      for (int64_t j = 0; j < i; ++j) s(i, j) /= sum;
    }
    return s;
  }
  Matrix balanced_order() const {
    Matrix s(blocks_, blocks_);
    for (int64_t i = 0; i < blocks_; ++i)
      for (int64_t j = 0; j < blocks_; ++j)
        s(i, j) = std::exp(score(i * block_, (i + 1) * block_, block_, j));
    const auto normalize = [&](bool rows) {
      for (int64_t i = 0; i < blocks_; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < blocks_; ++j) sum += rows ? s(i, j) : s(j, i);
        for (int64_t j = 0; j < blocks_; ++j) (rows ? s(i, j) : s(j, i)) /= sum;
      }
    };
    for (int64_t n = 0; n < iterations_; ++n) {
      normalize(true);
      normalize(false);
    }
    return s;
  }

  const SinkhornInputs& in_;
  Tensor hidden_weight_, output_weight_;
  int64_t example_, head_, valid_, block_, iterations_, blocks_;
  bool causal_;

 public:
  // The matrix S of the paper: order(i, j) is the weight of block j for the queries of block i.
  Matrix order;
};

// Returns the largest difference between the attention and the direct computation, over all tokens that are
// not padding.
double sinkhorn_error(const Attention& attention, const SinkhornInputs& in, const AttentionMask& mask,
                      int64_t block, int64_t iterations = 8) {
  const Tensor out = run_sinkhorn(attention, in, mask);
  double worst = 0;
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < kSinkhornHeads; ++h) {
      const int64_t valid = mask.key_lengths.defined() ? mask.key_lengths.data<int64_t>()[b] : in.q.size(1);
      SinkhornReference reference(attention, in, b, h, valid, block, iterations, mask.causal);
      for (int64_t i = 0; i < valid; ++i) {
        const std::vector<double> expected = reference.result(i);
        for (int64_t d = 0; d < kSinkhornDim; ++d)
          worst = max_error(
              worst,
              std::abs(out.data<double>()[((b * in.q.size(1) + i) * kSinkhornHeads + h) * kSinkhornDim + d] -
                       expected[static_cast<size_t>(d)]));
      }
    }
  return worst;
}

}  // namespace

TEST_CASE("sinkhorn: results equal the direct computation") {
  for (const int64_t length : {1, 3, 4, 6, 12, 17, 24}) {
    CAPTURE(length);
    const SinkhornInputs in(length);
    for (const int64_t block : {2, 3, 4}) {
      CAPTURE(block);
      const auto attention = make_sinkhorn(block);
      for (const bool causal : {false, true})
        CHECK(sinkhorn_error(*attention, in, sinkhorn_mask(causal), block) < 1e-12);
    }
  }
  const SinkhornInputs in(17);
  for (const int64_t iterations : {1, 20})
    CHECK(sinkhorn_error(*make_sinkhorn(3, iterations), in, sinkhorn_mask(false), 3, iterations) < 1e-12);
  CHECK(sinkhorn_error(*make_sinkhorn(3, 1), in, sinkhorn_mask(false), 3, 20) > 1e-6);  // negative control
}

TEST_CASE("sinkhorn: each row of the matrix S has a sum near 1 after a few iterations") {
  const SinkhornInputs in(24);
  const auto error = [&](int64_t iterations) {
    SinkhornReference reference(*make_sinkhorn(2), in, 0, 0, 24, 2, iterations, false);
    double worst = 0;
    for (int64_t i = 0; i < reference.order.rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < reference.order.columns; ++j) sum += reference.order(i, j);
      worst = std::max(worst, std::abs(sum - 1));
    }
    return worst;
  };
  CHECK(error(8) < 1e-3);
  CHECK(error(8) < error(2));
  CHECK(error(40) < 1e-12);
}

TEST_CASE("sinkhorn: a block that contains the sequence gives softmax attention") {
  const auto softmax = make_attention("softmax", {});
  for (const int64_t length : {5, 8}) {
    const SinkhornInputs in(length);
    const auto attention = make_sinkhorn(8);
    for (const AttentionMask& mask : {sinkhorn_mask(true), sinkhorn_mask(false),
                                      sinkhorn_mask(false, Tensor::from_vector<int64_t>({length, 3}, {2}))}) {
      CAPTURE(length);
      CHECK(max_difference(run_sinkhorn(*attention, in, mask), run_sinkhorn(*softmax, in, mask)) < 1e-9);
    }
  }
}

TEST_CASE("sinkhorn: masked tokens change nothing, and rows without keys are finite") {
  const Tensor lengths = Tensor::from_vector<int64_t>({17, 8, 0}, {3});
  const SinkhornInputs in(17, 3);
  const auto attention = make_sinkhorn(3);
  const AttentionMask mask = sinkhorn_mask(false, lengths);
  const Tensor out = run_sinkhorn(*attention, in, mask);
  CHECK(sinkhorn_error(*attention, in, mask, 3) < 1e-12);
  for (const double x : out.to_vector()) CHECK(std::isfinite(x));
  for (const double x : slice(out, 0, 2, 3).to_vector()) CHECK(x == 0);
  // Compares the second sequence with the same sequence without padding.
  SinkhornInputs shorter(1);
  const auto part = [](const Tensor& x) { return contiguous(slice(slice(x, 0, 1, 2), 1, 0, 8)); };
  shorter.q = part(in.q);
  shorter.k = part(in.k);
  shorter.v = part(in.v);
  CHECK(max_difference(part(out), run_sinkhorn(*attention, shorter, sinkhorn_mask(false))) < 1e-12);

  set_requires_grad(in.k);
  backward(sum(square(run_sinkhorn(*attention, in, mask))));
  const Tensor g = gradient(in.k);
  for (const double x : g.to_vector()) CHECK(std::isfinite(x));
  for (const double x : slice(slice(g, 0, 1, 2), 1, 8, 17).to_vector()) CHECK(x == 0);
}

TEST_CASE("sinkhorn: if S is a permutation, queries attend to their own block and the selected block") {
  constexpr int64_t kBlock = 4, kBlocks = 3, kLength = kBlock * kBlocks;
  constexpr int64_t kNext[kBlocks] = {1, 2, 0};
  const auto attention = make_sinkhorn(kBlock, 20, 1e-3);
  SinkhornInputs in(kLength);
  const Tensor hidden = sinkhorn_weight(*attention, "sort_hidden"),
               output = sinkhorn_weight(*attention, "sort_output");
  hidden.fill(0);
  output.fill(0);
  for (int64_t h = 0; h < kSinkhornHeads; ++h)
    for (int64_t d = 0; d < kSinkhornDim; ++d) {
      hidden.data<double>()[(h * kSinkhornDim + d) * kSinkhornDim + d] = 1;
      if (d < kBlocks) output.data<double>()[(h * kSinkhornDim + d) * output.size(2) + kNext[d]] = 1;
    }
  // Makes feature d of the keys in block d large, so that the keys identify the block.
  double* key = in.k.data<double>();
  for (int64_t i = 0; i < in.k.numel(); ++i)
    key[i] = 0.1 * key[i] + (i / (kSinkhornHeads * kSinkhornDim) % kLength / kBlock == i % kSinkhornDim);
  const auto with_selected = [&](const Tensor& x, int64_t block) {
    const auto rows = [&](int64_t b) { return slice(x, 1, b * kBlock, (b + 1) * kBlock); };
    return concat({rows(block), rows(kNext[block])}, 1);
  };
  const Tensor out = run_sinkhorn(*attention, in, sinkhorn_mask(false));
  for (int64_t b = 0; b < kBlocks; ++b) {
    const auto expected = make_attention("softmax", {})
                              ->forward(slice(in.q, 1, b * kBlock, (b + 1) * kBlock), with_selected(in.k, b),
                                        with_selected(in.v, b), sinkhorn_mask(false), {}, "layers.0");
    CHECK(max_difference(slice(out, 1, b * kBlock, (b + 1) * kBlock), expected) < 1e-12);
  }
}

TEST_CASE("sinkhorn: later tokens change no earlier result of causal attention, also in training") {
  const auto attention = make_sinkhorn(3);
  const SinkhornInputs in(17);
  for (const bool training : {false, true})
    for (int64_t changed = 1; changed < 17; ++changed) {
      CAPTURE(changed);
      SinkhornInputs other(17);
      for (const Tensor* x : {&other.q, &other.k, &other.v}) slice(*x, 1, changed, changed + 1).fill(7);
      const ForwardContext context{.training = training, .seed = 3};
      const Tensor before = run_sinkhorn(*attention, in, sinkhorn_mask(true), context);
      const Tensor after = run_sinkhorn(*attention, other, sinkhorn_mask(true), context);
      CHECK(max_difference(slice(before, 1, 0, changed), slice(after, 1, 0, changed)) == 0);
      CHECK(max_difference(before, after) > 0);
    }
}

TEST_CASE("sinkhorn: only training draws noise, which depends on the seed and the step") {
  const auto attention = make_sinkhorn(3);
  const SinkhornInputs in(17);
  for (const bool causal : {false, true}) {
    const auto run = [&](const ForwardContext& context) {
      return run_sinkhorn(*attention, in, sinkhorn_mask(causal), context).to_vector();
    };
    CHECK(run({.seed = 1, .step = 1}) == run({.seed = 2, .step = 2}));
    const auto noisy = run({.training = true, .seed = 1, .step = 1});
    CHECK(noisy == run({.training = true, .seed = 1, .step = 1}));
    CHECK(noisy != run({.training = true, .seed = 2, .step = 1}));
    CHECK(noisy != run({.training = true, .seed = 1, .step = 2}));
    CHECK(noisy != run({}));
  }
}

TEST_CASE("Gumbel noise has the mean and the variance of the Gumbel distribution") {
  constexpr int64_t kCount = 100'000;
  const RandomStream stream(1, "noise");
  const auto noise = add_gumbel_noise(Tensor::zeros({kCount}, DType::float64), stream).to_vector();
  double mean = 0, variance = 0;
  for (const double x : noise) mean += x / kCount;
  for (const double x : noise) variance += (x - mean) * (x - mean) / kCount;
  CHECK(mean == doctest::Approx(0.5772156649).epsilon(0.02));
  CHECK(variance == doctest::Approx(M_PI * M_PI / 6).epsilon(0.02));
  const auto rest = add_gumbel_noise(Tensor::zeros({kCount - 7}, DType::float64), stream, 7).to_vector();
  CHECK(std::equal(rest.begin(), rest.end(), noise.begin() + 7));
}

TEST_CASE("sinkhorn: invalid blocks and lengths are errors") {
  CHECK_THROWS_WITH_AS(
      check_attention_length("sinkhorn", find_attention_kind("sinkhorn").default_options(), 100),
      "attention_options.block: expected at most the length of the sequences, 100, got 128", OptionError);
  CHECK_THROWS_WITH_AS(make_attention("sinkhorn", find_attention_kind("sinkhorn").default_options()),
                       "sinkhorn: the sorting network needs a maximum length", std::invalid_argument);
  const auto attention = make_sinkhorn(4);
  CHECK_THROWS_WITH_AS(run_sinkhorn(*attention, SinkhornInputs(25), sinkhorn_mask(true)),
                       "sinkhorn: sequences of 25 tokens have more blocks than the maximum length allows, 6",
                       ShapeError);
}
