#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/lengths.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/top_positions.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kRouting = "routing";

struct RoutingOptions {
  int64_t clusters = 0, cluster_size = 0, local_window = 0;
  double local_share = 0, decay = 0;
};

Tensor normalize_rows(const Tensor& x) {
  return div(x, sqrt(add(sum(square(x), -1, true), 1e-12)));
}

// Attention of "Efficient Content-Based Sparse Attention with Routing Transformers" (Roy et al. 2020).
// Queries are also used as keys. The first `local_heads_` heads attend to a sliding window. The other heads
// attend within clusters. A cluster contains the tokens whose queries have the largest cosine similarity to
// the centroid of the cluster. Centroids are moving averages of normalised queries. A replay of the forward
// pass in backward() uses the clusters of the original pass.
class RoutingKind final : public Attention {
 public:
  RoutingKind(const RoutingOptions& options, const AttentionSetup& setup)
      : options_(options),
        local_heads_(static_cast<int64_t>(options.local_share * static_cast<double>(setup.heads))),
        dropout_(setup.dropout) {
    const int64_t heads = setup.heads - local_heads_, clusters = options_.clusters;
    if (options_.cluster_size == 0) {
      check(setup.max_length > 0, kRouting, "the default cluster size needs a maximum length");
      options_.cluster_size = (setup.max_length + clusters - 1) / clusters;
    }
    add_state("centroids", centroids_, {heads, clusters, setup.dim}, make_normal_initializer(1));
    add_statistics(sums_, {heads, clusters, setup.dim + 1}, [this] { update_centroids(); });
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(k.shape() == q.shape() && v.size(1) == q.size(1), kRouting,
          "queries are used as keys, but the shapes of q ", q.shape(), ", k ", k.shape(), " and v ",
          v.shape(), " differ");
    const auto heads = [](const Tensor& x, int64_t begin, int64_t end) { return slice(x, 2, begin, end); };
    const int64_t all = q.size(2), local = local_heads_;
    const Tensor routed = route(heads(q, local, all), heads(v, local, all), mask, context, name);
    if (local == 0) return routed;
    const Tensor queries = heads(q, 0, local);
    SoftmaxAttentionOptions options =
        make_softmax_attention_options(queries, queries, mask, dropout_, context, name + ".local");
    const int64_t reach = options_.local_window - 1;
    options.pattern.window = {.block_size = 1, .before = reach, .after = reach};
    return concat({softmax_attention(queries, queries, heads(v, 0, local), options), routed}, 2);
  }

 private:
  // Returns attention within clusters. The result of a token is the mean of its results in all clusters that
  // contain it, or 0 if no cluster contains it.
  Tensor route(const Tensor& q, const Tensor& v, const AttentionMask& mask, ForwardContext context,
               const std::string& name) const {
    const int64_t batch = q.size(0), length = q.size(1), clusters = options_.clusters;
    const int64_t size = std::min(options_.cluster_size, length);
    const auto select = [&] { return selected_tokens(detach(q), size, mask, context.training); };
    const Tensor selection =
        context.decisions ? context.decisions->get_or_decide(name + ".clusters", select) : select();
    const int64_t token_rows = batch * length * q.size(2);
    const auto in_clusters = [&](const Tensor& x) {
      return reshape(embedding(reshape(contiguous(x), {token_rows, x.size(3)}), selection),
                     {batch * clusters, size, x.size(2), x.size(3)});
    };
    AttentionMask cluster_mask{.causal = mask.causal, .key_lengths = {}};
    if (mask.key_lengths.defined()) {
      // A cluster selects masked tokens only if it has selected all valid tokens, so the masked tokens are
      // the last tokens of a cluster.
      const Tensor lengths = prepare_lengths(kRouting, "key length", mask.key_lengths, batch, length);
      cluster_mask.key_lengths = Tensor::empty({batch * clusters}, DType::int64);
      for (int64_t i = 0; i < batch * clusters; ++i)
        cluster_mask.key_lengths.data<int64_t>()[i] = std::min(lengths.data<int64_t>()[i / clusters], size);
    }
    const Tensor queries = in_clusters(q);
    context.first_example *= clusters;
    const Tensor out = softmax_attention(
        queries, queries, in_clusters(v),
        make_softmax_attention_options(queries, queries, cluster_mask, dropout_, context, name));
    const auto add_up = [&](const Tensor& x) {
      return scatter_rows(reshape(x, {batch, clusters, size, q.size(2), x.size(3)}), selection, token_rows);
    };
    const Tensor counts =
        add_up(Tensor::full({batch * clusters, size, q.size(2), 1}, 1, q.dtype(), q.device()));
    const Tensor weights =
        div(Tensor::full(counts.shape(), 1, q.dtype(), q.device()), add(relu(add(counts, -1)), 1));
    return reshape(mul(add_up(out), weights), v.shape());
  }

  // Returns the `size` tokens nearest to each centroid in increasing order: their rows in a matrix of all
  // tokens and heads, (batch, clusters, size, heads) int64. In training, also adds the queries to the
  // statistics.
  Tensor selected_tokens(const Tensor& q, int64_t size, const AttentionMask& mask, bool training) const {
    const NoGradScope no_grad;
    const int64_t batch = q.size(0), length = q.size(1), heads = q.size(2);
    const Tensor unit = normalize_rows(q);
    Tensor scores = matmul(normalize_rows(centroids_), permute(unit, {0, 2, 3, 1}));
    if (training) add_queries(unit, scores, mask);
    if (mask.key_lengths.defined())
      scores =
          add(scores, reshape(make_length_score_mask(mask.key_lengths, length, q), {batch, 1, 1, length}));
    const Tensor positions = permute(select_top_positions(scores, size), {0, 2, 3, 1}).to(DType::float64);
    // 0 to n - 1, made on the device, so that a CUDA graph can contain the step.
    const auto count = [&](int64_t n) {
      return select_top_positions(Tensor::zeros({n}, DType::float32, q.device()), n).to(DType::float64);
    };
    const Tensor first_rows =  // of the first token
        add(mul(reshape(count(batch), {batch, 1, 1, 1}), static_cast<double>(length * heads)), count(heads));
    return add(mul(positions, static_cast<double>(heads)), first_rows).to(DType::int64);
  }
  // Adds each normalised query in `unit` to the sum of its nearest centroid in sums_, and 1 to the count of
  // this centroid. Skips masked queries.
  void add_queries(const Tensor& unit, const Tensor& scores, const AttentionMask& mask) const {
    const Tensor nearest = argmax(permute(scores, {0, 3, 1, 2}));  // (batch, length, heads)
    const Shape shape{unit.size(0), unit.size(1), unit.size(2), 1};
    const Tensor zeros =
        Tensor::zeros({shape[0], shape[1], shape[2], options_.clusters}, unit.dtype(), unit.device());
    const Tensor one_hot =
        scatter_add(zeros, 3, reshape(nearest, shape), Tensor::full(shape, 1, unit.dtype(), unit.device()));
    const Tensor members = permute(zero_masked_rows(one_hot, mask), {0, 2, 3, 1});
    const Tensor sums = matmul(members, permute(unit, {0, 2, 1, 3}));
    sums_.add_scaled(sum(concat({sums, sum(members, 3, true)}, 3), 0));
  }
  // Moves each centroid towards the normalised mean of the queries that are nearest to it. Does not change a
  // centroid that is nearest to no query.
  void update_centroids() {
    const int64_t dim = centroids_.size(2);
    const Tensor means = normalize_rows(slice(sums_, 2, 0, dim));
    const Tensor counts = slice(sums_, 2, dim, dim + 1);
    const Tensor present = add(neg(relu(add(neg(counts), 1))), 1);  // min(counts, 1)
    centroids_.copy_from(add(centroids_, mul(mul(sub(means, centroids_), present), 1 - options_.decay)));
  }

  RoutingOptions options_;
  int64_t local_heads_;
  double dropout_;
  // Centroids of the clusters, (heads, clusters, dim). `heads` does not include the local heads. Checkpoints
  // store the centroids. update_centroids() changes the centroids, and the optimizer does not.
  Tensor centroids_;
  // Statistics for update_centroids(), (heads, clusters, dim + 1). For each cluster, the first `dim` columns
  // contain the sum of the normalised queries that are nearest to the centroid. The last column contains the
  // number of these queries.
  Tensor sums_;
};

RoutingOptions make_routing_options(const OptionValues& values) {
  return {.clusters = values.get<int64_t>("clusters"),
          .cluster_size = values.get<int64_t>("cluster_size"),
          .local_window = values.get<int64_t>("local_window"),
          .local_share = values.get<double>("local_share"),
          .decay = values.get<double>("decay")};
}

// Implements AttentionKind::count_multiply_adds. Counts the products with centroids, causal attention within
// clusters, and the windows of the local heads.
double count_routing_multiply_adds(const OptionValues& values, const AttentionSize& size) {
  const RoutingOptions o = make_routing_options(values);
  const auto length = static_cast<double>(size.length), clusters = static_cast<double>(o.clusters);
  const double members = o.cluster_size > 0 ? static_cast<double>(o.cluster_size) : length / clusters;
  const double routed = static_cast<double>(size.dim) * (length * clusters + clusters * members * members);
  return o.local_share * count_sparse_attention_multiply_adds(static_cast<double>(o.local_window), size) +
         (1 - o.local_share) * routed;
}

void check_routing_length(const OptionValues& values, int64_t length) {
  check_option_at_most_length(values, "clusters", length);
  check_option_at_most_length(values, "cluster_size", length);
}

std::vector<OptionSpec> routing_option_specs() {
  return {{.name = "clusters",
           .default_value = int64_t{8},
           .help = "number of clusters of each head",
           .min = 1,
           .max = 1 << 16},
          {.name = "cluster_size",
           .default_value = int64_t{0},
           .help = "tokens in a cluster; 0: maximum length of a sequence / clusters, rounded up",
           .min = 0,
           .max = 1 << 24},
          {.name = "local_share",
           .default_value = 0.5,
           .help = "share of the heads that attend to a sliding window, rounded down to whole heads",
           .min = 0,
           .max = 0.999},
          {.name = "local_window",
           .default_value = int64_t{256},
           .help = "keys that a local head reads before a query, including its own; as many after the query "
                   "without a causal mask",
           .min = 1,
           .max = 1 << 24},
          {.name = "decay",
           .default_value = 0.999,
           .help = "decay of the moving average of a centroid, per training step",
           .min = 0,
           .max = 1}};
}

}  // namespace

AttentionKind make_routing_attention_kind() {
  return {
      .name = kRouting,
      .help = "Routing Transformer: softmax attention within clusters of similar tokens",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths = make_unsupported("queries are used as keys"),
                       .recurrent = make_unsupported("a new token may move earlier tokens to other clusters"),
                       .weight_dropout = true,
                       .bfloat16 = make_unsupported("its clusters are computed in float32"),
                       .shares_query_key = true},
      .options = routing_option_specs(),
      .make = [](const OptionValues& values, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
        return std::make_unique<RoutingKind>(make_routing_options(values), setup);
      },
      .check_length = check_routing_length,
      .count_multiply_adds = count_routing_multiply_adds,
      .test_options = {{"clusters", int64_t{2}}, {"cluster_size", int64_t{6}}, {"local_window", int64_t{4}}}};
}

}  // namespace tapeformer
