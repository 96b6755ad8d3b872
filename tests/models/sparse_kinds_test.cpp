// Tests that attention kinds with sparse patterns compute the attention weights that the papers define.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "models/layers/option_error.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Options = std::vector<std::pair<std::string, OptionValue>>;
constexpr int64_t kPatternHeads = 2, kPatternDim = 4;

// Queries, keys and values of one sequence. The value of token j is 1 in dimension j and 0 elsewhere, so the
// result of attention is the matrix of attention weights.
struct Sequence {
  explicit Sequence(int64_t length)
      : q(normal({1, length, kPatternHeads, kPatternDim}, 1)),
        k(normal({1, length, kPatternHeads, kPatternDim}, 2)),
        v(Tensor::zeros({1, length, kPatternHeads, length}, DType::float64)) {
    for (int64_t j = 0; j < length; ++j)
      for (int64_t h = 0; h < kPatternHeads; ++h) v.data<double>()[(j * kPatternHeads + h) * length + j] = 1;
  }
  Tensor q, k, v;
};

// The attention weights that a kind computes. at(h, i, j) is the weight of key j for query i in head h.
class Weights {
 public:
  Weights(const std::string& kind, const Options& options, int64_t length, bool causal,
          const std::string& layer = "layer")
      : length_(length) {
    const Sequence s(length);
    const auto attention =
        make_attention(kind, find_attention_kind(kind).make_options(options), {.heads = kPatternHeads});
    weights_ = attention->forward(s.q, s.k, s.v, {.causal = causal, .key_lengths = {}}, {}, layer);
  }
  double at(int64_t h, int64_t i, int64_t j) const {
    return weights_.data<double>()[(i * kPatternHeads + h) * length_ + j];
  }
  bool operator==(const Weights& other) const { return weights_.to_vector() == other.weights_.to_vector(); }

 private:
  int64_t length_;
  Tensor weights_;
};

// Returns the largest error of `weights`. The reference is softmax attention to the keys j for which
// contains(h, i, j) is true. Returns 1 if any other key has a nonzero weight.
template <class Contains>
double error_of(const Weights& weights, int64_t length, bool causal, Contains contains) {
  const Sequence s(length);
  double worst = 0;
  for (int64_t h = 0; h < kPatternHeads; ++h)
    for (int64_t i = 0; i < length; ++i) {
      std::vector<double> expected(static_cast<size_t>(length), 0.0);
      double sum = 0;
      for (int64_t j = 0; j < (causal ? i + 1 : length); ++j) {
        if (!contains(h, i, j)) continue;
        double product = 0;
        for (int64_t d = 0; d < kPatternDim; ++d)
          product += s.q.data<double>()[(i * kPatternHeads + h) * kPatternDim + d] *
                     s.k.data<double>()[(j * kPatternHeads + h) * kPatternDim + d];
        sum += expected[static_cast<size_t>(j)] =
            std::exp(product / std::sqrt(static_cast<double>(kPatternDim)));
      }
      for (int64_t j = 0; j < length; ++j) {
        const double weight = expected[static_cast<size_t>(j)];
        if (weight == 0 && weights.at(h, i, j) != 0) return 1;
        worst = std::max(worst, std::abs(weights.at(h, i, j) - (sum == 0 ? 0 : weight / sum)));
      }
    }
  return worst;
}

template <class Contains>
void check_weights(const std::string& kind, const Options& options, Contains contains) {
  for (const int64_t length : {1, 6, 50, 131})
    for (const bool causal : {false, true}) {
      CAPTURE(concat_text(kind, ", ", length, ", ", causal));
      CHECK(error_of(Weights(kind, options, length, causal), length, causal, contains) < 1e-12);
    }
}

// Returns the message of the OptionError that a kind throws for the options or for the length. Returns "" if
// the kind throws no error.
std::string problem_of(const std::string& kind, const Options& options, int64_t length) {
  try {
    const OptionValues values = find_attention_kind(kind).make_options(options);
    make_attention(kind, values);
    check_attention_length(kind, values, length);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("sparse attention has the weights of its definition") {
  const auto near = [](int64_t i, int64_t j) { return std::abs(i - j) < 5; };
  check_weights("sparse", {{"form", std::string("strided")}, {"stride", int64_t{5}}},
                [&](int64_t, int64_t i, int64_t j) { return near(i, j) || (i - j) % 5 == 0; });
  check_weights("sparse",
                {{"form", std::string("strided")}, {"stride", int64_t{5}}, {"heads", std::string("split")}},
                [&](int64_t h, int64_t i, int64_t j) { return h == 0 ? near(i, j) : (i - j) % 5 == 0; });
  check_weights("sparse", {{"stride", int64_t{6}}, {"summary", int64_t{2}}},
                [](int64_t, int64_t i, int64_t j) { return i / 6 == j / 6 || j % 6 >= 4; });
  // In head 1, the first four queries attend to no key if the mask is causal.
  check_weights("sparse", {{"stride", int64_t{6}}, {"summary", int64_t{2}}, {"heads", std::string("split")}},
                [](int64_t h, int64_t i, int64_t j) { return h == 0 ? i / 6 == j / 6 : j % 6 >= 4; });
}

TEST_CASE("two layers of sparse attention reach all earlier tokens") {
  for (const char* form : {"strided", "fixed"}) {
    Options options = {{"form", std::string(form)}, {"stride", int64_t{5}}};
    if (std::string(form) == "fixed") options.emplace_back("summary", int64_t{1});
    const Weights weights("sparse", options, 64, true);
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        bool reached = false;
        for (int64_t m = j; m <= i && !reached; ++m)
          reached = weights.at(0, i, m) > 0 && weights.at(0, m, j) > 0;
        CHECK(reached);
      }
  }
}

TEST_CASE("longformer attention has the weights of its definition") {
  check_weights("longformer", {{"window", int64_t{8}}, {"global_tokens", int64_t{0}}},
                [](int64_t, int64_t i, int64_t j) { return std::abs(i - j) <= 4; });
  check_weights("longformer", {{"window", int64_t{8}}, {"global_tokens", int64_t{3}}},
                [](int64_t, int64_t i, int64_t j) { return std::abs(i - j) <= 4 || i < 3 || j < 3; });
  check_weights("longformer", {{"window", int64_t{4}}, {"dilation", int64_t{3}}},
                [](int64_t, int64_t i, int64_t j) {
                  return (std::abs(i - j) <= 6 && (i - j) % 3 == 0) || i < 1 || j < 1;
                });
}

TEST_CASE("image attention has the weights of its definition") {
  check_weights("image", {{"block", int64_t{7}}, {"memory", int64_t{3}}},
                [](int64_t, int64_t i, int64_t j) { return j >= i / 7 * 7 - 3 && j < i / 7 * 7 + 7; });
  const Options rectangles = {{"form", std::string("2d")}, {"image_width", int64_t{9}},
                              {"block_rows", int64_t{2}},  {"block_columns", int64_t{4}},
                              {"memory_rows", int64_t{1}}, {"memory_columns", int64_t{2}}};
  check_weights("image", rectangles, [](int64_t, int64_t i, int64_t j) {
    const int64_t top = i / 9 / 2 * 2, left = i % 9 / 4 * 4;
    return j / 9 >= top - 1 && j / 9 <= top + 2 && j % 9 >= left - 2 && j % 9 < left + 6;
  });
}

TEST_CASE("axial attention has the weights of rows and of columns") {
  check_weights("axial-row", {{"image_width", int64_t{7}}},
                [](int64_t, int64_t i, int64_t j) { return i / 7 == j / 7; });
  check_weights("axial-column", {{"image_width", int64_t{7}}},
                [](int64_t, int64_t i, int64_t j) { return (i - j) % 7 == 0; });
}

TEST_CASE(
    "a causal row layer and a causal column layer reach the rectangle above and to the left of a token") {
  constexpr int64_t kWidth = 7;
  const Weights rows("axial-row", {{"image_width", kWidth}}, 49, true);
  const Weights columns("axial-column", {{"image_width", kWidth}}, 49, true);
  for (int64_t i = 0; i < 49; ++i)
    for (int64_t j = 0; j < 49; ++j) {
      bool reached = false;
      for (int64_t m = 0; m < 49 && !reached; ++m) reached = columns.at(0, i, m) > 0 && rows.at(0, m, j) > 0;
      CHECK(reached == (j / kWidth <= i / kWidth && j % kWidth <= i % kWidth));
    }
}

TEST_CASE("big-bird attends to its window, to global blocks and to distinct random blocks") {
  constexpr int64_t kLength = 131, kBlock = 6, kBlocks = 22;  // the last block has only 5 tokens
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const Weights weights("big-bird", {{"block", kBlock}, {"random_blocks", int64_t{3}}}, kLength, causal);
    std::vector<std::set<int64_t>> random(kPatternHeads * kBlocks);
    for (int64_t h = 0; h < kPatternHeads; ++h)
      for (int64_t query = 0; query < kBlocks; ++query) {
        const auto is_near = [&](int64_t key) {
          const bool is_last = !causal && (key == kBlocks - 1 || query == kBlocks - 1);
          return std::abs(key - query) <= 1 || key == 0 || query == 0 || is_last;
        };
        auto& drawn = random[static_cast<size_t>(h * kBlocks + query)];
        int64_t candidates = 0;
        for (int64_t key = 0; key < (causal ? query : kBlocks); ++key) {
          candidates += is_near(key) ? 0 : 1;
          if (!is_near(key) && weights.at(h, query * kBlock, key * kBlock) > 0) drawn.insert(key);
        }
        CHECK(static_cast<int64_t>(drawn.size()) == std::min<int64_t>(candidates, 3));
      }
    const auto contains = [&](int64_t h, int64_t i, int64_t j) {
      const int64_t query = i / kBlock, key = j / kBlock;
      const bool is_last = !causal && (key == kBlocks - 1 || query == kBlocks - 1);
      return std::abs(key - query) <= 1 || key == 0 || query == 0 || is_last ||
             random[static_cast<size_t>(h * kBlocks + query)].contains(key);
    };
    CHECK(error_of(weights, kLength, causal, contains) < 1e-12);
    CHECK(std::set(random.begin(), random.end()).size() > 10);  // query blocks draw different random blocks
  }
}

TEST_CASE("the random blocks of big-bird depend on the seed and the layer, and not on later tokens") {
  const auto weights = [](int64_t seed, const std::string& layer, int64_t length) {
    return Weights("big-bird", {{"block", int64_t{4}}, {"block_seed", seed}}, length, true, layer);
  };
  CHECK(weights(1, "a", 90) == weights(1, "a", 90));
  CHECK_FALSE(weights(1, "a", 90) == weights(2, "a", 90));
  CHECK_FALSE(weights(1, "a", 90) == weights(1, "b", 90));
  const Weights shorter = weights(1, "a", 61), longer = weights(1, "a", 90);
  for (int64_t i = 0; i < 61; ++i)
    for (int64_t j = 0; j <= i; ++j) CHECK((shorter.at(0, i, j) > 0) == (longer.at(0, i, j) > 0));
}

TEST_CASE("patterns that contain all keys give softmax attention") {
  constexpr int64_t kLength = 70;
  const std::vector<std::pair<std::string, Options>> kinds = {
      {"sparse", {{"stride", int64_t{70}}}},
      {"sparse", {{"stride", int64_t{1}}, {"summary", int64_t{1}}}},
      {"sparse", {{"form", std::string("strided")}, {"stride", int64_t{70}}}},
      {"sparse", {{"form", std::string("strided")}, {"stride", int64_t{1}}}},
      {"longformer", {{"window", int64_t{140}}}},
      {"longformer", {{"window", int64_t{2}}, {"global_tokens", int64_t{70}}}},
      {"big-bird", {{"block", int64_t{7}}, {"window_blocks", int64_t{19}}}},
      {"big-bird", {{"block", int64_t{7}}, {"global_blocks", int64_t{10}}}},
      {"big-bird", {{"block", int64_t{7}}, {"window_blocks", int64_t{1}}, {"random_blocks", int64_t{9}}}},
      {"image", {{"block", int64_t{70}}}},
      {"axial-row", {{"image_width", int64_t{70}}}},
      {"axial-column", {{"image_width", int64_t{1}}}},
      {"image", {{"form", std::string("2d")}, {"image_width", int64_t{16}}, {"memory_rows", int64_t{8}}}}};
  for (const auto& [kind, options] : kinds)
    for (const bool causal : {false, true}) {
      const std::string text = concat_text(kind, " ", options.back().first, ", ", causal);
      CAPTURE(text);
      const auto all = [](int64_t, int64_t, int64_t) { return true; };
      CHECK(error_of(Weights(kind, options, kLength, causal), kLength, causal, all) < 1e-12);
    }
}

TEST_CASE("options of sparse patterns that contradict each other or the length are errors") {
  CHECK(problem_of("sparse", {{"summary", int64_t{129}}}, 1024) ==
        "attention_options.summary: expected at most stride, 128, got 129");
  CHECK(problem_of("sparse", {}, 100) ==
        "attention_options.stride: expected at most the length of the sequences, 100, got 128");
  CHECK(
      problem_of("longformer", {{"window", int64_t{7}}}, 100) ==
      "attention_options.window: expected an even number, half of the tokens on each side of a token, got 7");
  CHECK(problem_of("longformer", {{"dilation", int64_t{2}}}, 100) ==
        "attention_options.window: expected at most 100, so that window / 2 * dilation is at most the length "
        "of the sequences, 100, got 512");
  CHECK(problem_of("longformer", {{"window", int64_t{8}}, {"global_tokens", int64_t{101}}}, 100) ==
        "attention_options.global_tokens: expected at most the length of the sequences, 100, got 101");
  CHECK(problem_of("big-bird", {{"window_blocks", int64_t{2}}}, 1024) ==
        "attention_options.window_blocks: expected an odd number, because the window is centred on the block "
        "of the query, got 2");
  CHECK(problem_of("big-bird", {}, 448) ==
        "attention_options.random_blocks: expected at most 2, the blocks of sequences of 448 tokens outside "
        "the window and the global blocks, got 3; with a smaller value of block there are more blocks");
  CHECK(problem_of("big-bird", {}, 449) == "");
  CHECK(problem_of("axial-column", {}, 31) ==
        "attention_options.image_width: expected at most the length of the sequences, 31, got 32");
  CHECK(problem_of("image", {}, 100) ==
        "attention_options.block: expected at most the length of the sequences, 100, got 256");
  CHECK(problem_of("image", {{"form", std::string("2d")}}, 100) ==
        "attention_options.image_width: expected the number of tokens in a row of the images for form = 2d, "
        "got 0");
  CHECK(problem_of("image", {{"form", std::string("2d")}, {"image_width", int64_t{15}}}, 100) ==
        "attention_options.block_columns: expected at most image_width, 15, got 16");
  CHECK(problem_of("image", {{"form", std::string("2d")}, {"image_width", int64_t{128}}}, 100) ==
        "attention_options.image_width: expected at most the length of the sequences, 100, got 128");
}
