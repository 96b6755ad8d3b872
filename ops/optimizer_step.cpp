#include "ops/optimizer_step.h"

namespace tapeformer {

void optimizer_step(const std::vector<ParameterSlot>& slots, const StepRule& rule) {
  for (const ParameterSlot& slot : slots)
    on_device(slot.parameter.device(), "optimizer_step", [&] {
      visit_floating("optimizer_step", slot.parameter.dtype(), [&](auto tag) {
        using T = decltype(tag);
        cpu::optimizer_step(rule, slot.gradient_scale, slot.parameter.data<T>(), slot.gradient.data<T>(),
                            slot.first.data<T>(), slot.second.defined() ? slot.second.data<T>() : nullptr,
                            slot.parameter.numel());
      });
    });
}

std::vector<double> squared_norms(const std::vector<Tensor>& tensors) {
  std::vector<double> norms;
  for (const Tensor& tensor : tensors) {
    const Tensor x = tensor.is_contiguous() ? tensor : tensor.clone();
    on_device(x.device(), "squared_norms", [&] {
      visit_floating("squared_norms", x.dtype(), [&](auto tag) {
        using T = decltype(tag);
        norms.push_back(cpu::squared_norm(x.data<T>(), x.numel()));
      });
    });
  }
  return norms;
}

void average_into(const Tensor& average, const Tensor& value, double decay) {
  check(average.shape() == value.shape() && average.dtype() == value.dtype(), "average_into", "shapes ",
        average.shape(), " and ", value.shape());
  on_device(average.device(), "average_into", [&] {
    visit_floating("average_into", average.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::average_into(average.data<T>(), value.data<T>(), decay, average.numel());
    });
  });
}

}  // namespace tapeformer
