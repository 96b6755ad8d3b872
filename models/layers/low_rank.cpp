#include "models/layers/low_rank.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/low_rank.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace tapeformer {

LowRankAdapter::LowRankAdapter(int64_t in, int64_t out, const LowRankOptions& options,
                               const std::string& name)
    : options_(options), stream_name_(name + ".lora") {
  add_parameter("lora_A.weight", a, {options.rank, in},
                make_uniform_initializer(1 / std::sqrt(static_cast<double>(in))));
  add_parameter("lora_B.weight", b, {out, options.rank}, make_constant_initializer(0));
}

Tensor LowRankAdapter::compute_product() const {
  return mul(matmul(b, a), scale());
}

DropoutMask LowRankAdapter::make_mask(const AdapterContext& context) const {
  if (!context.context) return {};
  return context.context->make_dropout_mask(options_.dropout, stream_name_)
      .at_offset(context.first_row * a.size(1));
}

Tensor add_adapters(const std::vector<const Linear*>& layers, const Tensor& x, Tensor y,
                    const AdapterContext& context) {
  std::vector<Tensor> inputs;
  std::vector<LowRankTerm> terms;
  const LowRankAdapter* first = nullptr;
  int64_t column = 0;
  for (const Linear* layer : layers) {
    if (const LowRankAdapter* const adapter = layer->adapter()) {
      if (!first) first = adapter;
      inputs.push_back(adapter->a);
      terms.push_back({adapter->b, column});
    }
    column += layer->weight.size(0);
  }
  const Tensor low =
      linear(dropout(x, first->make_mask(context)), inputs.size() == 1 ? inputs[0] : concat(inputs, 0), {},
             Activation::none, {}, y.dtype());
  return add_low_rank(std::move(y), low, terms, first->scale());
}

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

bool is_adapter_tensor(const std::string& name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

}  // namespace tapeformer
