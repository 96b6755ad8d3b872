// The multi-head attention block MAB(I, X) of the Set Transformer with learned queries I (Lee et al. 2019,
// equations 6 and 7). The block reads a set X of any size and returns one row per query.
#pragma once

#include <string>

#include "models/layers/layers.h"

namespace tapeformer {

struct LearnedQueriesOptions {
  int64_t count = 1;  // number of queries
  int64_t heads = 1, dim = 1;
  int64_t feedforward = 1;  // hidden units
  double dropout = 0;       // probability of dropping an attention weight
};

class LearnedQueries final : public Module {
 public:
  explicit LearnedQueries(const LearnedQueriesOptions& options);

  // Returns norm2(h + feedforward(h)) with h = norm1(I + attention(I, X)), a tensor (batch, count, heads *
  // dim). k and v (batch, length, heads, dim) are the projected keys and values of X. In sequence b, keys at
  // positions key_lengths[b] and later are masked. `name` is the prefix of the name of the dropout stream.
  Tensor forward(const Tensor& k, const Tensor& v, const Tensor& key_lengths, const ForwardContext& context,
                 const std::string& name) const;

  const LearnedQueriesOptions& options() const { return options_; }

  Tensor queries;  // I, (count, heads * dim)
  Linear query_projection, out_projection;
  FeedForward feedforward;
  Norm norm1, norm2;

 private:
  LearnedQueriesOptions options_;
};

}  // namespace tapeformer
