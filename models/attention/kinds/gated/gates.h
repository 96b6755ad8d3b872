// The gates of linear attention with decays: log decays, write strengths and output gates, which are computed
// from the input x of the layer.
#pragma once

#include <memory>
#include <vector>

#include "models/attention/kinds/gated/options.h"
#include "models/layers/layers.h"
#include "ops/gated_linear_attention.h"
#include "ops/inference.h"
#include "ops/view.h"

namespace tapeformer {

// A linear layer of full rank, or the product of two layers of the width `rank`.
class Projection final : public Module {
 public:
  // If `rank` is 0, the layer has full rank.
  Projection(int64_t in, int64_t out, int64_t rank, bool has_bias);
  // Maps x (…, in) to (…, out).
  Tensor forward(const Tensor& x, DType result_dtype) const;

 private:
  friend class DecodingProjection;

  std::unique_ptr<Linear> first_;  // null if the layer has full rank
  Linear last_;
};

// A Projection in decoding.
class DecodingProjection {
 public:
  DecodingProjection() = default;
  // Computes factor * (projection of x + added). `added` can be undefined.
  DecodingProjection(const Projection& projection, const AttentionStateOptions& shape,
                     const Tensor& added = {}, double factor = 1);
  void forward_into(const Tensor& x, const Tensor& out) const;

 private:
  DecodingLinear first_, last_;
  Tensor hidden_;  // (batch, rank); undefined if the layer has full rank
};

// Returns f of tensors that are converted to the compute dtype, in the dtype of the first tensor.
template <class F>
Tensor compute_in_wide_dtype(F f, std::vector<Tensor> x) {
  const DType dtype = x[0].dtype();
  for (Tensor& tensor : x) tensor = cast(tensor, get_compute_dtype(dtype));
  return cast(f(x), dtype);
}

// The log decays g and the write strengths β of one direction of a layer.
class Gates final : public Module {
 public:
  Gates(const GatedLinearOptions& options, const AttentionSetup& setup);
  // Sets target.log_decay and target.beta for x (batch, length, width), in the compute dtype `dtype`.
  void apply(const Tensor& x, DType dtype, GatedLinearAttentionOptions& target) const;

 private:
  friend class DecodingGates;

  bool is_per_channel() const;
  Tensor make_fixed_decays(const AttentionSetup& setup) const;
  Tensor compute_rate() const;  // exp(A), finite in float32
  Tensor compute_log_decay(const Tensor& a) const;

  GatedLinearOptions options_;
  int64_t heads_, dim_;
  std::unique_ptr<Projection> decay_, beta_;  // null if not used
  Tensor fixed_;                              // (heads,)
  Tensor log_rate_;                           // A of DecayForm, (heads, 1)
  Tensor time_step_;                          // b of DecayForm, (heads,) or (width,)
};

// The gates of one token of each sequence. Allocates memory only in the constructor.
class DecodingGates {
 public:
  DecodingGates(const Gates& gates, const AttentionStateOptions& shape);
  // Computes the gates for x (batch, width).
  void observe(const Tensor& x);
  // The log decays and write strengths that observe() has computed.
  const GatedTokenOptions& values() const { return values_; }

 private:
  DecayForm form_;
  DecodingProjection decay_, beta_;
  Tensor factor_;      // the factor of softplus or sigmoid in the log decay, in the shape of the log decays
  Tensor rate_;        // exp(A) in the shape of the log decays; only for DecayForm::bounded
  Tensor beta_range_;  // (batch, heads); undefined if the maximum of β is 1
  Tensor flat_decay_;  // values_.log_decay as (batch, heads) or (batch, width)
  bool has_beta_ = false;  // whether β has a projection
  GatedTokenOptions values_;
};

}  // namespace tapeformer
