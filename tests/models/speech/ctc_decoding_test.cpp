#include "models/speech/ctc_decoding.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "ops/ctc_loss.h"
#include "tests/support/lengths.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

CtcLabels collapse(const CtcLabels& path, int64_t blank) {
  CtcLabels labels;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

// Returns the log-probability of each label sequence for logits (frames, classes). The probability of a
// sequence is the sum of the probabilities of all paths that give this sequence.
std::map<CtcLabels, double> all_labels(const double* logits, int64_t frames, int64_t classes, int64_t blank) {
  int64_t paths = 1;
  for (int64_t t = 0; t < frames; ++t) paths *= classes;
  std::map<CtcLabels, double> result;
  for (int64_t code = 0; code < paths; ++code) {
    CtcLabels path;
    double probability = 1;
    for (int64_t t = 0, rest = code; t < frames; ++t, rest /= classes) {
      double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += std::exp(logits[t * classes + k]);
      path.push_back(rest % classes);
      probability *= std::exp(logits[t * classes + path.back()]) / sum;
    }
    result[collapse(path, blank)] += probability;
  }
  for (auto& [labels, value] : result) value = std::log(value);
  return result;
}

double language_score(const CtcLabels& labels, const Tensor& bigram, double weight, double bonus) {
  double score = 0;
  int64_t last = 0;
  for (const int64_t label : labels) {
    score += bonus + weight * bigram.data<double>()[last * bigram.size(1) + label];
    last = label;
  }
  return score;
}

}  // namespace

TEST_CASE("greedy decoding merges repeated classes and removes blanks") {
  const std::vector<int64_t> path = {0, 1, 1, 0, 1, 2, 2, 2, 0, 0, 1};
  const Tensor logits = Tensor::zeros({2, 11, 3});
  for (int64_t t = 0; t < 11; ++t)
    for (int64_t b = 0; b < 2; ++b) logits.data<float>()[(b * 11 + t) * 3 + path[static_cast<size_t>(t)]] = 1;
  const auto labels = ctc_greedy_decode(logits, lengths({11, 4}));
  CHECK(labels[0] == CtcLabels{1, 1, 2, 1});
  CHECK(labels[1] == CtcLabels{1});
  CHECK(ctc_greedy_decode(logits, lengths({11, 0}), 1)[0] == CtcLabels{0, 0, 2, 0});
  CHECK(ctc_greedy_decode(logits, lengths({11, 0}), 1)[1].empty());
}

TEST_CASE("a beam that holds all prefixes finds all labels with their exact scores") {
  constexpr int64_t kFrames = 5, kClasses = 3;
  for (const int64_t blank : {0, 2}) {
    const Tensor logits = normal({2, kFrames, kClasses}, 3);
    const auto found = ctc_beam_search(logits, lengths({kFrames, 3}), {.blank = blank, .beam_size = 1000});
    for (const int64_t b : {0, 1}) {
      const auto expected =
          all_labels(logits.data<double>() + b * kFrames * kClasses, b == 0 ? kFrames : 3, kClasses, blank);
      const auto& list = found[static_cast<size_t>(b)];
      REQUIRE(list.size() == expected.size());
      double best = -INFINITY;
      for (const auto& [labels, score] : expected) best = std::max(best, score);
      CHECK(list[0].score == doctest::Approx(best).epsilon(1e-12));
      for (size_t i = 0; i < list.size(); ++i) {
        CHECK(list[i].score == doctest::Approx(expected.at(list[i].labels)).epsilon(1e-12));
        if (i > 0) CHECK(list[i].score <= list[i - 1].score);
      }
    }
  }
}

TEST_CASE("a bigram and a bonus change the scores and can change the best labels") {
  constexpr int64_t kFrames = 5, kClasses = 3;
  const Tensor logits = normal({1, kFrames, kClasses}, 4);
  const Tensor bigram = Tensor::from_vector<double>({0, -9, -0.1, 0, -0.2, -5, 0, -4, -6}, {3, 3});
  const auto expected = all_labels(logits.data<double>(), kFrames, kClasses, 0);
  const CtcBeamOptions options{
      .beam_size = 1000, .bigram_log_probabilities = bigram, .bigram_weight = 0.7, .label_bonus = 0.3};
  const auto found = ctc_beam_search(logits, lengths({kFrames}), options)[0];
  REQUIRE(found.size() == expected.size());
  for (const CtcHypothesis& h : found)
    CHECK(h.score == doctest::Approx(expected.at(h.labels) + language_score(h.labels, bigram, 0.7, 0.3)));
  CHECK(found[0].labels != ctc_beam_search(logits, lengths({kFrames}), {.beam_size = 1000})[0][0].labels);
}

TEST_CASE("the scores of a narrow beam are at most the exact scores, which equal the CTC loss") {
  constexpr int64_t kFrames = 12, kClasses = 4;
  const Tensor logits = normal({1, kFrames, kClasses}, 6);
  for (int64_t i = 0; i < logits.numel(); ++i) logits.data<double>()[i] *= 3;
  for (const int64_t beam : {1, 4, 64, 4096}) {
    const auto found = ctc_beam_search(logits, lengths({kFrames}), {.beam_size = beam})[0];
    REQUIRE(static_cast<int64_t>(found.size()) == beam);
    const auto count = static_cast<int64_t>(found[0].labels.size());
    const Tensor labels = Tensor::from_vector<int64_t>(found[0].labels, {1, count});
    const double exact = -ctc_loss(logits, lengths({kFrames}), labels, lengths({count})).loss.item();
    // The score is a lower bound, because it does not include paths through pruned prefixes.
    CHECK(found[0].score <= exact + 1e-9);
    if (beam == 4096) CHECK(found[0].score > exact - 1e-4);
  }
}

TEST_CASE("the beam finds labels that are more probable than the labels of the best path") {
  // The blank is the most probable class of both frames. But the label {1} has a larger total probability
  // than the path of two blanks, because three paths give this label.
  const double half = std::log(0.6), label = std::log(0.4);
  const Tensor logits = Tensor::from_vector<double>({half, label, half, label}, {1, 2, 2});
  CHECK(ctc_greedy_decode(logits, lengths({2}))[0].empty());
  const auto found = ctc_beam_search(logits, lengths({2}), {.beam_size = 4})[0];
  CHECK(found[0].labels == CtcLabels{1});
  CHECK(found[0].score == doctest::Approx(std::log(0.64)));
}

TEST_CASE("invalid arguments of CTC decoding are errors") {
  const Tensor logits = normal({2, 5, 3});
  CHECK_THROWS_WITH_AS(ctc_greedy_decode(logits, lengths({5})),
                       "ctc_greedy_decode: lengths (1,) of int64 must be (2,) of int64", ShapeError);
  CHECK_THROWS_WITH(ctc_greedy_decode(logits, lengths({5, 6})),
                    "ctc_greedy_decode: length 6 of sequence 1 is not in [0, 5]");
  CHECK_THROWS_WITH(ctc_greedy_decode(logits, lengths({5, 5}), 3),
                    "ctc_greedy_decode: blank 3 is not in [0, 3)");
  CHECK_THROWS_WITH(ctc_beam_search(logits, lengths({5, 5}), {.beam_size = 0}),
                    "ctc_beam_search: beam 0 must be positive");
  CHECK_THROWS_WITH(ctc_beam_search(logits, lengths({5, 5}), {.bigram_log_probabilities = normal({2, 3})}),
                    "ctc_beam_search: bigram_log_probabilities must be float64 (3, 3)");
}
