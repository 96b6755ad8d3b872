#include "ops/rounded_weights.h"

#include <algorithm>
#include <functional>

#include "core/device_control.h"
#include "ops/linear.h"

namespace tapeformer {

namespace {

const float* end_of(const Tensor& weight) {
  return static_cast<const float*>(weight.raw_data()) + weight.numel();
}

}  // namespace

RoundedWeights::RoundedWeights(const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) {
    if (weight.device().is_cpu() || get_operand_dtype(weight) == weight.dtype()) continue;
    check(weight.is_contiguous(), "RoundedWeights", "weight ", weight.shape(), " must be contiguous");
    weights_.push_back(detach(weight));
  }
  std::sort(weights_.begin(), weights_.end(),
            [](const Tensor& a, const Tensor& b) { return std::less<>()(a.raw_data(), b.raw_data()); });
  for (size_t first = 0; first < weights_.size();) {
    size_t last = first + 1;
    int64_t count = weights_[first].numel();
    for (; last < weights_.size() && weights_[last].raw_data() == end_of(weights_[last - 1]); ++last)
      count += weights_[last].numel();
    const Tensor copies = Tensor::empty({count}, DType::bfloat16, weights_[first].device());
    const DeviceScope scope(copies.device());
    for (int64_t offset = 0; first < last; offset += weights_[first++].numel()) {
      copies_.push_back(copies.alias({weights_[first].numel()}, {1}, offset));
      copies_by_address_[weights_[first].data<float>()] = copies_.back().data<BFloat16>();
    }
  }
}

void RoundedWeights::update() const {
  if (weights_.empty()) return;
  if constexpr (kHasCuda) {
    const DeviceScope scope(weights_.front().device(), "RoundedWeights");
    std::vector<RoundingTask> arrays;
    for (size_t i = 0; i < weights_.size(); ++i)
      arrays.push_back({weights_[i].data<float>(), copies_[i].data<BFloat16>(), weights_[i].numel()});
    round_arrays(cuda::Backend{}, arrays.data(), static_cast<int64_t>(arrays.size()));
  }
}

const BFloat16* RoundedWeights::find_copy(const Tensor& weight) const {
  if (weight.dtype() != DType::float32) return nullptr;
  const auto found = copies_by_address_.find(static_cast<const float*>(weight.raw_data()));
  return found == copies_by_address_.end() ? nullptr : found->second;
}

}  // namespace tapeformer
