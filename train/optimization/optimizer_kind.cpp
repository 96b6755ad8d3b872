#include "train/optimization/optimizer_kind.h"

#include "core/options/part.h"
#include "ops/elementwise.h"

namespace tapeformer {
namespace {

Registry<OptimizerKind>& optimizer_registry() {
  static auto& kinds =
      *new Registry<OptimizerKind>("optimizer", {make_radam_kind(), make_adam_kind(), make_adamw_kind(),
                                                 make_sgd_kind(), make_adafactor_kind(), make_muon_kind()});
  return kinds;
}

}  // namespace

Tensor update_with_scaled_gradients(const std::vector<ParameterUpdate>& updates, const Clipping& clipping,
                                    const std::function<void(const ParameterUpdate&)>& update_one) {
  std::vector<Tensor> gradients;
  for (const ParameterUpdate& one : updates) gradients.push_back(one.gradient);
  const auto [scales, norm] = compute_gradient_scales(gradients, clipping);
  for (size_t i = 0; i < updates.size(); ++i) {
    ParameterUpdate one = updates[i];
    one.gradient = mul(one.gradient, scales.view({}, {}, static_cast<int64_t>(i)).to(one.gradient.dtype()));
    update_one(one);
  }
  return norm;
}

void register_optimizer_kind(OptimizerKind kind) {
  optimizer_registry().add(std::move(kind));
}

const std::deque<OptimizerKind>& list_optimizer_kinds() {
  return optimizer_registry().list();
}

const OptimizerKind& find_optimizer_kind(const std::string& name) {
  return optimizer_registry().find(name);
}

}  // namespace tapeformer
