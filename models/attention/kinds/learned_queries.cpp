#include "models/attention/kinds/learned_queries.h"

#include <cmath>

#include "models/attention/kinds/softmax.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {

LearnedQueries::LearnedQueries(const LearnedQueriesOptions& options)
    : query_projection(options.heads * options.dim, options.heads * options.dim),
      out_projection(options.heads * options.dim, options.heads * options.dim),
      feedforward(options.heads * options.dim, options.feedforward, {}),
      norm1(options.heads * options.dim),
      norm2(options.heads * options.dim),
      options_(options) {
  const int64_t width = options.heads * options.dim;
  // The queries are drawn from U(-a, a) with a = sqrt(6 / (count + width)), the bound of Glorot and Bengio
  // (2010) for a matrix (count, width). The code of Lee et al. applies xavier_uniform_ to a tensor (1, count,
  // width), which gives the smaller bound sqrt(6 / (width * (count + 1))).
  add_parameter("queries", queries, {options.count, width},
                make_uniform_initializer(std::sqrt(6 / static_cast<double>(options.count + width))));
  add_child("query_projection", query_projection);
  add_child("out_projection", out_projection);
  add_child("", feedforward);
  add_child("norm1", norm1);
  add_child("norm2", norm2);
}

Tensor LearnedQueries::forward(const Tensor& k, const Tensor& v, const Tensor& key_lengths,
                               const ForwardContext& context, const std::string& name) const {
  const int64_t batch = k.size(0), count = options_.count, heads = options_.heads, dim = options_.dim;
  const Shape rows{batch, count, heads * dim};
  const Tensor q = broadcast_to(reshape(query_projection.forward(queries), {1, count, heads, dim}),
                                {batch, count, heads, dim});
  const Tensor attended =
      softmax_attention(q, k, v,
                        make_softmax_attention_options(q, k, {.causal = false, .key_lengths = key_lengths},
                                                       options_.dropout, context, name));
  const Tensor h = norm1.forward(contiguous(broadcast_to(queries, rows)),
                                 out_projection.forward(reshape(attended, rows)), {});
  return norm2.forward(h, feedforward.forward(h, {}, h.dtype()), {});
}

}  // namespace tapeformer
