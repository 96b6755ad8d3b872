#include "ops/ctc_loss.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/gradcheck.h"
#include "core/threads/threads.h"
#include "tests/support/lengths.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Labels = std::vector<int64_t>;

// Returns the labels of a batch as a tensor (utterances, largest label count). The padding is -7, which is
// not a valid class, because the loss must ignore padding.
Tensor padded_labels(const std::vector<Labels>& utterances) {
  size_t longest = 0;
  for (const Labels& labels : utterances) longest = std::max(longest, labels.size());
  Labels all;
  for (Labels labels : utterances) {
    labels.resize(longest, -7);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return Tensor::from_vector<int64_t>(
      all, {static_cast<int64_t>(utterances.size()), static_cast<int64_t>(longest)});
}
Tensor label_counts(const std::vector<Labels>& utterances) {
  std::vector<int64_t> counts;
  for (const Labels& labels : utterances) counts.push_back(static_cast<int64_t>(labels.size()));
  return lengths(counts);
}

// Returns the labels of a path, which has one class per frame: merges repeated classes, then removes blanks.
Labels collapse(const Labels& path, int64_t blank) {
  Labels labels;
  for (size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) labels.push_back(path[t]);
  return labels;
}

// Returns the CTC loss of logits (frames, classes), computed from the definition of the loss: the negative
// logarithm of the total probability of all paths that collapse to `labels`.
double brute_force(const double* logits, int64_t frames, int64_t classes, const Labels& labels,
                   int64_t blank) {
  int64_t paths = 1;
  for (int64_t t = 0; t < frames; ++t) paths *= classes;
  long double total = 0;
  for (int64_t code = 0; code < paths; ++code) {
    Labels path;
    for (int64_t t = 0, rest = code; t < frames; ++t, rest /= classes) path.push_back(rest % classes);
    if (collapse(path, blank) != labels) continue;
    long double probability = 1;
    for (int64_t t = 0; t < frames; ++t) {
      long double sum = 0;
      for (int64_t k = 0; k < classes; ++k) sum += expl(logits[t * classes + k]);
      probability *= expl(logits[t * classes + path[static_cast<size_t>(t)]]) / sum;
    }
    total += probability;
  }
  return static_cast<double>(-logl(total));
}

// A batch of six utterances. kMixed contains the labels of each utterance, and kMixedFrames contains the
// number of frames of each utterance. The fifth utterance has neither labels nor frames. kMixedInfeasible is
// the number of infeasible utterances. Only the last utterance is infeasible, because its labels {2, 2, 2}
// need 5 frames.
const std::vector<Labels> kMixed = {{1, 2}, {1, 1, 2}, {}, {3}, {}, {2, 2, 2}};
const std::vector<int64_t> kMixedFrames = {5, 4, 3, 1, 0, 4};
constexpr int64_t kMixedInfeasible = 1;

}  // namespace

TEST_CASE("the CTC loss equals the sum over all paths") {
  constexpr int64_t kClasses = 4;
  const std::vector<Labels> targets = {{},        {1},       {1, 2},       {2, 2},
                                       {3, 1, 3}, {1, 1, 2}, {2, 3, 1, 2}, {3, 3, 3}};
  for (const int64_t blank : {0, 3})
    for (int64_t frames = 1; frames <= 5; ++frames)
      for (Labels labels : targets) {
        for (int64_t& label : labels) label = blank == 3 ? label - 1 : label;
        const Tensor logits = normal({1, frames, kClasses}, static_cast<int>(frames));
        const CtcLoss result = ctc_loss(logits, lengths({frames}), padded_labels({labels}),
                                        label_counts({labels}), {.blank = blank});
        const double expected = brute_force(logits.data<double>(), frames, kClasses, labels, blank);
        CAPTURE(frames);
        CAPTURE(labels.size());
        CHECK(result.infeasible_count == (std::isinf(expected) ? 1 : 0));
        CHECK(result.loss.item() == doctest::Approx(std::isinf(expected) ? 0 : expected).epsilon(1e-12));
      }
}

TEST_CASE("CTC losses of utterances do not depend on their batch, and the mean follows the reduction") {
  constexpr int64_t kFrames = 5, kClasses = 4;
  const Tensor logits = normal({6, kFrames, kClasses}, 3);
  const CtcLoss both = ctc_loss(logits, lengths(kMixedFrames), padded_labels(kMixed), label_counts(kMixed));
  CHECK(both.infeasible_count == kMixedInfeasible);
  double total = 0, labels = 0;
  for (size_t b = 0; b < kMixed.size(); ++b) {
    const double expected = brute_force(logits.data<double>() + static_cast<int64_t>(b) * kFrames * kClasses,
                                        kMixedFrames[b], kClasses, kMixed[b], 0);
    CHECK(both.losses.to_vector()[b] == doctest::Approx(std::isinf(expected) ? 0 : expected).epsilon(1e-12));
    if (std::isinf(expected)) continue;
    total += expected;
    labels += static_cast<double>(kMixed[b].size());
  }
  CHECK(labels == 6);
  CHECK(both.loss.item() == doctest::Approx(total / 5).epsilon(1e-12));
  const CtcLoss per_label = ctc_loss(logits, lengths(kMixedFrames), padded_labels(kMixed),
                                     label_counts(kMixed), {.reduction = CtcReduction::per_label});
  CHECK(per_label.loss.item() == doctest::Approx(total / labels).epsilon(1e-12));
}

TEST_CASE("gradients of CTC pass the gradient check") {
  for (const CtcReduction reduction : {CtcReduction::per_utterance, CtcReduction::per_label}) {
    auto loss = [&](const std::vector<Tensor>& in) {
      return ctc_loss(in[0], lengths(kMixedFrames), padded_labels(kMixed), label_counts(kMixed),
                      {.reduction = reduction})
          .loss;
    };
    CHECK(gradcheck(loss, {normal({6, 5, 4}, 4)}).max_relative_error < 1e-8);
  }
  const std::vector<Labels> longer = {{4, 4, 1, 2, 6, 6, 6, 3}, {1, 2, 3, 5}};
  auto loss = [&](const std::vector<Tensor>& in) {
    return ctc_loss(in[0], lengths({23, 9}), padded_labels(longer), label_counts(longer)).loss;
  };
  CHECK(gradcheck(loss, {normal({2, 23, 7}, 5)}).max_relative_error < 1e-8);
}

TEST_CASE("CTC does not read frames beyond a length or infeasible pairs, and their gradients are zero") {
  const Tensor logits = set_requires_grad(normal({6, 5, 4}, 6));
  for (size_t b = 0; b < 6; ++b)
    for (int64_t i = kMixedFrames[b] * 4; i < 20; ++i)
      logits.data<double>()[static_cast<int64_t>(b) * 20 + i] = std::nan("");
  const CtcLoss result = ctc_loss(logits, lengths(kMixedFrames), padded_labels(kMixed), label_counts(kMixed));
  CHECK(std::isfinite(result.loss.item()));
  backward(result.loss);
  const Tensor g = gradient(logits);
  for (size_t b = 0; b < 6; ++b) {
    const bool infeasible = b == 5;
    for (int64_t i = 0; i < 20; ++i) {
      const double value = g.data<double>()[static_cast<int64_t>(b) * 20 + i];
      if (i >= kMixedFrames[b] * 4 || infeasible)
        REQUIRE(value == 0);
      else
        REQUIRE(value != 0);
    }
  }
}

TEST_CASE("the CTC loss and gradient of a batch without feasible pairs are zero") {
  const Tensor logits = set_requires_grad(normal({2, 2, 4}, 7));
  const std::vector<Labels> targets = {{1, 1}, {1, 2, 3}};
  const CtcLoss result = ctc_loss(logits, lengths({2, 2}), padded_labels(targets), label_counts(targets));
  CHECK(result.infeasible_count == 2);
  CHECK(result.loss.item() == 0);
  backward(result.loss);
  for (const double g : gradient(logits).to_vector()) CHECK(g == 0);
  CHECK(ctc_loss(normal({0, 3, 4}), lengths({}), Tensor::zeros({0, 2}, DType::int64), lengths({}))
            .loss.item() == 0);
}

TEST_CASE("CTC in float32 is accurate for 2,400 frames") {
  constexpr int64_t kFrames = 2400, kClasses = 40, kLabels = 300;
  const RandomStream stream(5, "labels");
  Labels labels;
  for (uint64_t i = 0; i < kLabels; ++i)
    labels.push_back(1 + static_cast<int64_t>(stream.uniform_below(i, 39)));
  // If the distributions of the classes are sharp, some prefixes of the labels are much more probable than
  // others. The probabilities of improbable prefixes must not underflow, because the loss depends on these
  // prefixes.
  const Tensor sharp = normal({1, kFrames, kClasses}, 8);
  for (int64_t i = 0; i < sharp.numel(); ++i) sharp.data<double>()[i] *= 12;
  for (const Tensor& start : {normal({1, kFrames, kClasses}, 9), sharp}) {
    auto run = [&](DType dtype) {
      const Tensor logits = set_requires_grad(start.to(DType::float32).to(dtype));
      const Tensor loss =
          ctc_loss(logits, lengths({kFrames}), padded_labels({labels}), label_counts({labels})).loss;
      backward(loss);
      return std::pair{loss.item(), gradient(logits).to(DType::float64)};
    };
    const auto [exact_loss, exact] = run(DType::float64);
    const auto [single_loss, single] = run(DType::float32);
    CHECK(exact_loss > 5000);
    CHECK(single_loss == doctest::Approx(exact_loss).epsilon(1e-6));
    CHECK(max_difference(single, exact) < 2e-4);
  }
}

TEST_CASE("the CTC loss and its gradient do not depend on the number of threads") {
  const Tensor start = normal({7, 60, 9}, 10, DType::float32);
  const std::vector<Labels> targets(7, Labels{1, 2, 2, 8, 4});
  auto run = [&](int count) {
    const int before = get_thread_count();
    set_thread_count(count);
    const Tensor logits = set_requires_grad(start.clone());
    const CtcLoss result =
        ctc_loss(logits, lengths({60, 50, 6, 7, 60, 1, 33}), padded_labels(targets), label_counts(targets));
    backward(result.loss);
    set_thread_count(before);
    auto all = gradient(logits).to_vector();
    all.push_back(result.loss.item());
    return all;
  };
  const auto once = run(1);
  CHECK(once == run(2));
  CHECK(once == run(3));
}

TEST_CASE("the CTC loss is infinite for impossible labels and NaN for frames with NaN") {
  const Tensor logits = set_requires_grad(Tensor::zeros({2, 3, 3}));
  for (int64_t t = 0; t < 3; ++t) logits.data<float>()[t * 3 + 1] = -INFINITY;
  const std::vector<Labels> targets = {{1}, {2}};
  const CtcLoss result = ctc_loss(logits, lengths({3, 3}), padded_labels(targets), label_counts(targets));
  CHECK(std::isinf(result.losses.to_vector()[0]));
  CHECK(std::isfinite(result.losses.to_vector()[1]));
  backward(result.loss);
  for (int64_t i = 0; i < 9; ++i) CHECK(gradient(logits).to_vector()[static_cast<size_t>(i)] == 0);
  logits.data<float>()[12] = NAN;
  CHECK(std::isnan(ctc_loss(logits, lengths({3, 3}), padded_labels(targets), label_counts(targets))
                       .losses.to_vector()[1]));
}

TEST_CASE("errors about arguments of CTC contain the expected value") {
  const Tensor logits = normal({2, 5, 4});
  const std::vector<Labels> targets = {{1, 2}, {3}};
  const Tensor labels = padded_labels(targets), counts = label_counts(targets), frames = lengths({5, 5});
  CHECK_THROWS_WITH_AS(ctc_loss(normal({5, 4}), frames, labels, counts),
                       "ctc_loss: logits must be (batch, frames, classes), not (5, 4)", ShapeError);
  CHECK_THROWS_WITH(ctc_loss(logits, lengths({5}), labels, counts),
                    "ctc_loss: frame lengths (1,) of int64 must be (2,) of int64");
  CHECK_THROWS_WITH(ctc_loss(logits, lengths({5, 6}), labels, counts),
                    "ctc_loss: frame length 6 of sequence 1 is not in [0, 5]");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, labels, lengths({3, 1})),
                    "ctc_loss: label length 3 of sequence 0 is not in [0, 2]");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, labels.view({1, 4}), counts),
                    "ctc_loss: labels must be (batch, longest), not (1, 4) for logits (2, 5, 4)");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, labels.to(DType::int32), counts),
                    "ctc_loss: labels must be int64, not int32");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, padded_labels({{1, 4}, {3}}), counts),
                    "ctc_loss: label 4 at index 1 of utterance 0 is not in [0, 4)");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, labels, counts, {.blank = 3}),
                    "ctc_loss: label 3 at index 0 of utterance 1 is the blank");
  CHECK_THROWS_WITH(ctc_loss(logits, frames, labels, counts, {.blank = 4}),
                    "ctc_loss: blank 4 is not in [0, 4)");
}
