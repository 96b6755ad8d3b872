#include "models/layers/adapted_layers.h"

#include <algorithm>

namespace tapeformer {

void add_low_rank_adapters(Module& model, const std::vector<std::string>& layers,
                           const LowRankOptions& options) {
  std::vector<std::string> added;
  model.visit_modules([&](const std::string& name, Module& module) {
    auto* const layer = dynamic_cast<Linear*>(&module);
    if (!layer || std::find(layers.begin(), layers.end(), name) == layers.end()) return;
    if (!layer->takes_adapter) throw std::invalid_argument(name + ": the layer takes no adapter");
    layer->add_adapter(options, name);
    added.push_back(name);
  });
  for (const std::string& name : layers)
    if (std::find(added.begin(), added.end(), name) == added.end())
      throw std::invalid_argument(name + ": the model has no such linear layer");
}

std::vector<std::string> list_adaptable_layers(Module& model) {
  std::vector<std::string> names;
  model.visit_modules([&](const std::string& name, Module& module) {
    if (const auto* const layer = dynamic_cast<const Linear*>(&module); layer && layer->takes_adapter)
      names.push_back(name);
  });
  return names;
}

void merge_adapters(Module& model) {
  std::vector<Linear*> layers;
  model.visit_modules([&](const std::string&, Module& module) {
    if (auto* const layer = dynamic_cast<Linear*>(&module); layer && layer->adapter())
      layers.push_back(layer);
  });
  for (Linear* layer : layers) layer->merge_adapter();
}

}  // namespace tapeformer
