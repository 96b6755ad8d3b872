// Tests that compare routing attention with a direct computation, and tests of its centroids.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/layers/option_error.h"
#include "ops/sum.h"
#include "ops/top_positions.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kRoutingHeads = 2, kRoutingDim = 4;
using RoutingChoices = std::vector<std::pair<std::string, OptionValue>>;

struct RoutingInputs {
  explicit RoutingInputs(int64_t length, int64_t batch = 2)
      : q(normal({batch, length, kRoutingHeads, kRoutingDim}, 1)),
        v(normal({batch, length, kRoutingHeads, kRoutingDim}, 2)) {}
  Tensor q, v;
};

std::unique_ptr<Attention> make_routing(int64_t clusters, int64_t size, double local_share,
                                        const RoutingChoices& choices = {}) {
  RoutingChoices options = {{"clusters", clusters},
                            {"cluster_size", size},
                            {"local_share", local_share},
                            {"local_window", int64_t{3}}};
  options.insert(options.end(), choices.begin(), choices.end());
  auto attention = make_attention("routing", find_attention_kind("routing").make_options(options),
                                  {.heads = kRoutingHeads, .dim = kRoutingDim, .max_length = 32});
  attention->initialize(1);
  attention->convert(DType::float64);
  return attention;
}

Tensor run_routing(const Attention& attention, const RoutingInputs& in, bool causal,
                   const Tensor& lengths = {}, const ForwardContext& context = {}) {
  return attention.forward(in.q, in.q, in.v, {.causal = causal, .key_lengths = lengths}, context, "layers.0");
}

Tensor centroids_of(const Attention& attention) {
  return attention.saved_tensors().front().second;
}

// Returns the result of query i in head h of sequence b, computed as softmax attention to the positions j for
// which attends(j) is true. The queries are also the keys.
template <class Attends>
std::vector<double> attention_row(const RoutingInputs& in, int64_t b, int64_t h, int64_t i, Attends attends) {
  const auto at = [&](const Tensor& x, int64_t token, int64_t d) {
    return x.data<double>()[((b * in.q.size(1) + token) * kRoutingHeads + h) * kRoutingDim + d];
  };
  std::vector<double> out(kRoutingDim, 0.0);
  double total = 0;
  for (int64_t j = 0; j < in.q.size(1); ++j) {
    if (!attends(j)) continue;
    double score = 0;
    for (int64_t d = 0; d < kRoutingDim; ++d) score += at(in.q, i, d) * at(in.q, j, d);
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kRoutingDim)));
    total += weight;
    for (int64_t d = 0; d < kRoutingDim; ++d) out[static_cast<size_t>(d)] += weight * at(in.v, j, d);
  }
  for (double& x : out) x = total > 0 ? x / total : 0;
  return out;
}

// Returns the members of each cluster for head h of sequence b. result[c][i] is true if token i is one of the
// `size` tokens that are nearest to centroid c. Tokens with indices >= `valid` are padding and are never
// members. `state_head` is the index of the head in the tensor of centroids.
std::vector<std::vector<bool>> members_of(const Attention& attention, const RoutingInputs& in, int64_t b,
                                          int64_t h, int64_t state_head, int64_t size, int64_t valid) {
  const Tensor centroids = centroids_of(attention);
  std::vector<std::vector<bool>> clusters;
  for (int64_t c = 0; c < centroids.size(1); ++c) {
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t i = 0; i < valid; ++i) {
      double dot = 0, squares = 0;
      for (int64_t d = 0; d < kRoutingDim; ++d) {
        const double x = in.q.data<double>()[((b * in.q.size(1) + i) * kRoutingHeads + h) * kRoutingDim + d];
        dot += x * centroids.data<double>()[(state_head * centroids.size(1) + c) * kRoutingDim + d];
        squares += x * x;
      }
      order.emplace_back(-dot / std::sqrt(squares), i);
    }
    std::sort(order.begin(), order.end());
    std::vector<bool> members(static_cast<size_t>(in.q.size(1)), false);
    for (int64_t i = 0; i < std::min(size, valid); ++i)
      members[static_cast<size_t>(order[static_cast<size_t>(i)].second)] = true;
    clusters.push_back(members);
  }
  return clusters;
}

// Returns the largest difference between the attention and the direct computation, over all tokens that are
// not padding.
double routing_error(const Attention& attention, const RoutingInputs& in, int64_t size, int64_t local_heads,
                     bool causal, const Tensor& lengths = {}) {
  const Tensor out = run_routing(attention, in, causal, lengths);
  const int64_t length = in.q.size(1);
  double worst = 0;
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < kRoutingHeads; ++h) {
      const int64_t valid = lengths.defined() ? lengths.data<int64_t>()[b] : length;
      const auto visible = [&](int64_t i, int64_t j) { return causal ? j <= i : j < valid; };
      std::vector<std::vector<bool>> clusters;
      if (h >= local_heads) clusters = members_of(attention, in, b, h, h - local_heads, size, valid);
      for (int64_t i = 0; i < valid; ++i) {
        std::vector<double> expected(kRoutingDim, 0.0);
        double found = 0;
        if (h < local_heads)
          expected =
              attention_row(in, b, h, i, [&](int64_t j) { return visible(i, j) && std::abs(i - j) < 3; });
        for (const auto& members : clusters) {
          if (!members[static_cast<size_t>(i)]) continue;
          const auto row = attention_row(
              in, b, h, i, [&](int64_t j) { return visible(i, j) && members[static_cast<size_t>(j)]; });
          ++found;
          for (size_t d = 0; d < row.size(); ++d) expected[d] += row[d];
        }
        for (int64_t d = 0; d < kRoutingDim; ++d)
          worst = max_error(
              worst, std::abs(out.data<double>()[((b * length + i) * kRoutingHeads + h) * kRoutingDim + d] -
                              expected[static_cast<size_t>(d)] / std::max(found, 1.0)));
      }
    }
  return worst;
}

}  // namespace

TEST_CASE("routing: attention equals the direct computation") {
  const Tensor lengths = Tensor::from_vector<int64_t>({17, 9}, {2});
  for (const int64_t clusters : {1, 2, 5})
    for (const int64_t size : {1, 3, 6, 17})
      for (const bool causal : {false, true})
        for (const bool local : {false, true}) {
          CAPTURE(concat_text(clusters, " ", size, " ", causal, " ", local));
          const auto attention = make_routing(clusters, size, local ? 0.5 : 0);
          const RoutingInputs in(17);
          CHECK(routing_error(*attention, in, size, local, causal) < 1e-12);
          CHECK(routing_error(*attention, in, size, local, causal, lengths) < 1e-12);
        }
  // Negative control: the direct computation uses clusters of 5 tokens, but the attention uses clusters of 6.
  CHECK(routing_error(*make_routing(2, 6, 0), RoutingInputs(17), 5, 0, true) > 1e-3);
}

TEST_CASE("routing: one cluster with all tokens gives softmax attention with shared queries and keys") {
  const auto shared = make_attention("shared-softmax", {});
  const RoutingInputs in(17);
  for (const bool causal : {false, true})
    CHECK(max_difference(run_routing(*make_routing(1, 20, 0), in, causal), run_routing(*shared, in, causal)) <
          1e-12);
}

TEST_CASE("routing: padding does not change results, and sequences without keys have the result 0") {
  const auto attention = make_routing(2, 6, 0.5);
  RoutingInputs in(17, 3);
  const Tensor lengths = Tensor::from_vector<int64_t>({17, 5, 0}, {3});
  for (const bool causal : {false, true}) {
    const Tensor out = run_routing(*attention, in, causal, lengths);
    for (const double x : out.to_vector()) CHECK(std::isfinite(x));
    if (!causal)
      for (const double x : slice(out, 0, 2, 3).to_vector()) CHECK(x == 0);
    RoutingInputs shorter(1);
    const auto part = [](const Tensor& x) { return contiguous(slice(slice(x, 0, 1, 2), 1, 0, 5)); };
    shorter.q = part(in.q);
    shorter.v = part(in.v);
    CHECK(max_difference(part(out), run_routing(*attention, shorter, causal)) < 1e-12);
  }
}

TEST_CASE("routing: causal attention excludes later keys, but later queries may change clusters") {
  const auto attention = make_routing(3, 6, 0.5);
  const RoutingInputs in(17);
  const Tensor before = run_routing(*attention, in, true);
  int64_t moved = 0;
  for (int64_t changed = 1; changed < 17; ++changed) {
    // A later value does not change earlier results.
    RoutingInputs other(17);
    slice(other.v, 1, changed, changed + 1).fill(7);
    const Tensor after = run_routing(*attention, other, true);
    CHECK(max_difference(slice(before, 1, 0, changed), slice(after, 1, 0, changed)) == 0);
    // A later query can replace an earlier token in a cluster, which changes earlier results.
    RoutingInputs another(17);
    slice(another.q, 1, changed, changed + 1).fill(7);
    const Tensor changed_query = run_routing(*attention, another, true);
    const Tensor first = slice(changed_query, 1, 0, changed);
    moved += max_difference(slice(before, 1, 0, changed), first) > 0;
    // Local heads do not depend on later tokens.
    CHECK(max_difference(slice(slice(before, 1, 0, changed), 2, 0, 1), slice(first, 2, 0, 1)) == 0);
  }
  CHECK(moved > 0);
}

TEST_CASE("routing: update_state() moves centroids towards their mean queries, only in training") {
  constexpr double kDecay = 0.9;
  const auto attention = make_routing(2, 6, 0, {{"decay", kDecay}});
  const RoutingInputs in(17);
  const Tensor centroids = centroids_of(*attention), initial = centroids.clone();
  CHECK(attention->parameters().empty());
  run_routing(*attention, in, true);
  attention->update_state();
  CHECK(max_difference(centroids, initial) == 0);

  // Computes, for each centroid, the sum of the normalized queries that are nearest to this centroid. The sum
  // has the same direction as the mean of these queries.
  Tensor means = Tensor::zeros(initial.shape(), DType::float64);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 17; ++i)
      for (int64_t h = 0; h < kRoutingHeads; ++h) {
        const double* const q = in.q.data<double>() + ((b * 17 + i) * kRoutingHeads + h) * kRoutingDim;
        const double norm = std::sqrt(std::inner_product(q, q + kRoutingDim, q, 0.0));
        const auto score = [&](int64_t c) {
          const double* const centroid = initial.data<double>() + (h * 2 + c) * kRoutingDim;
          return std::inner_product(q, q + kRoutingDim, centroid, 0.0) /
                 std::sqrt(std::inner_product(centroid, centroid + kRoutingDim, centroid, 0.0));
        };
        const int64_t nearest = score(1) > score(0) ? 1 : 0;
        for (int64_t d = 0; d < kRoutingDim; ++d)
          means.data<double>()[(h * 2 + nearest) * kRoutingDim + d] += q[d] / norm;
      }
  Tensor expected = initial.clone();
  for (int64_t row = 0; row < 2 * kRoutingHeads; ++row) {
    double* const mean = means.data<double>() + row * kRoutingDim;
    const double norm = std::sqrt(std::inner_product(mean, mean + kRoutingDim, mean, 0.0));
    for (int64_t d = 0; d < kRoutingDim; ++d) {
      double& x = expected.data<double>()[row * kRoutingDim + d];
      x = kDecay * x + (1 - kDecay) * mean[d] / norm;
    }
  }
  StoredDecisions decisions;
  const ForwardContext training{.training = true, .decisions = &decisions};
  run_routing(*attention, in, true, {}, training);
  // The second run replays the stored decisions, so it adds nothing to the statistics.
  run_routing(*attention, in, true, {}, training);
  CHECK(max_difference(centroids, initial) == 0);
  REQUIRE(attention->statistics().size() == 1);
  double tokens = 0;
  for (const double count :
       slice(attention->statistics().front(), 2, kRoutingDim, kRoutingDim + 1).to_vector())
    tokens += count;
  CHECK(tokens == 2 * 17 * kRoutingHeads);
  attention->update_state();
  CHECK(max_difference(centroids, expected) < 1e-11);
  CHECK(sum(attention->statistics().front()).item() == 0);
  attention->update_state();  // centroids that received no queries do not change
  CHECK(max_difference(centroids, expected) < 1e-11);
}

TEST_CASE("routing: masked tokens do not change centroids") {
  const RoutingInputs in(17);
  const auto updated = [&](const RoutingInputs& inputs) {
    const auto attention = make_routing(2, 6, 0);
    run_routing(*attention, inputs, false, Tensor::from_vector<int64_t>({17, 9}, {2}), {.training = true});
    attention->update_state();
    return centroids_of(*attention).to_vector();
  };
  RoutingInputs other(17);
  slice(slice(other.q, 0, 1, 2), 1, 9, 17).fill(5);
  CHECK(updated(in) == updated(other));
  slice(slice(other.q, 0, 1, 2), 1, 8, 9).fill(5);
  CHECK(updated(in) != updated(other));
}

TEST_CASE("routing: clusters and cluster_size above the sequence length are errors") {
  const auto problem = [](const RoutingChoices& options) {
    return message_of<OptionError>([&] {
      check_attention_length("routing", find_attention_kind("routing").make_options(options), 100);
    });
  };
  CHECK(problem({{"clusters", int64_t{101}}}) ==
        "attention_options.clusters: expected at most the length of the sequences, 100, got 101");
  CHECK(problem({{"cluster_size", int64_t{101}}}) ==
        "attention_options.cluster_size: expected at most the length of the sequences, 100, got 101");
  CHECK(problem({}).empty());
  CHECK_THROWS_WITH_AS(make_attention("routing", find_attention_kind("routing").default_options()),
                       "routing: the default cluster size needs a maximum length", std::invalid_argument);
}
