#include "models/attention/score_masks.h"

#include <algorithm>
#include <limits>

#include "ops/elementwise.h"
#include "ops/lengths.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Returns a tensor (batch, length) with the dtype and the device of `like`. In row b, the first lengths[b]
// elements are `valid`, and the other elements are `masked`.
Tensor make_length_mask(const Tensor& lengths, int64_t length, double valid, double masked,
                        const Tensor& like) {
  const Tensor list = prepare_lengths("attention", "key length", lengths.to(kCpu), lengths.numel(), length);
  const Tensor values = Tensor::full({list.numel(), length}, masked, DType::float64);
  for (int64_t b = 0; b < list.numel(); ++b)
    std::fill_n(values.data<double>() + b * length, list.data<int64_t>()[b], valid);
  return values.to(like.dtype()).to(like.device());
}

}  // namespace

Tensor make_causal_score_mask(int64_t length) {
  const Tensor scores = Tensor::zeros({length, length});
  for (int64_t i = 0; i < length; ++i)
    std::fill(scores.data<float>() + i * length + i + 1, scores.data<float>() + (i + 1) * length,
              static_cast<float>(kMinusInfinity));
  return scores;
}

Tensor make_length_score_mask(const Tensor& lengths, int64_t length, const Tensor& like) {
  return make_length_mask(lengths, length, 0, kMinusInfinity, like);
}

Tensor zero_masked_rows(const Tensor& x, const AttentionMask& mask) {
  if (!mask.key_lengths.defined()) return x;
  return mul(x,
             reshape(make_length_mask(mask.key_lengths, x.size(1), 1, 0, x), {x.size(0), x.size(1), 1, 1}));
}

DropoutMask make_weight_dropout_mask(const Tensor& q, const Tensor& k, double p,
                                     const ForwardContext& context, const std::string& name) {
  DropoutMask mask = context.make_dropout_mask(p, name + ".weights");
  return mask.at_offset(context.first_example * q.size(2) * q.size(1) * k.size(1));
}

}  // namespace tapeformer
