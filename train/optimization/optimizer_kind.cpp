#include "train/optimization/optimizer_kind.h"

#include "core/options/part.h"

namespace tapeformer {
namespace {

Registry<OptimizerKind>& optimizer_registry() {
  static auto& kinds = *new Registry<OptimizerKind>(
      "optimizer",
      {make_radam_kind(), make_adam_kind(), make_adamw_kind(), make_sgd_kind(), make_adafactor_kind()});
  return kinds;
}

}  // namespace

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
