#include "ops/rounded_weights.h"

#include "core/device_control.h"
#include "ops/linear.h"

namespace tapeformer {

RoundedWeights::RoundedWeights(const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) {
    if (weight.device().is_cpu() || operand_dtype(weight) == weight.dtype()) continue;
    check(weight.is_contiguous(), "RoundedWeights", "weight ", weight.shape(), " must be contiguous");
    weights_.push_back(detach(weight));
    copies_.push_back(Tensor::empty(weight.shape(), DType::bfloat16, weight.device()));
    const DeviceScope scope(weight.device());
    addresses_[weights_.back().data<float>()] = copies_.back().data<BFloat16>();
  }
}

void RoundedWeights::update() const {
  if (weights_.empty()) return;
  if constexpr (kHasCuda) {
    const DeviceScope scope(weights_.front().device(), "RoundedWeights");
    std::vector<RoundedArray> arrays;
    for (size_t i = 0; i < weights_.size(); ++i)
      arrays.push_back({weights_[i].data<float>(), copies_[i].data<BFloat16>(), weights_[i].numel()});
    round_arrays(cuda::Backend{}, arrays.data(), static_cast<int64_t>(arrays.size()));
  }
}

}  // namespace tapeformer
