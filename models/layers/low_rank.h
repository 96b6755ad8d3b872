// Low-rank adapters of linear layers (Hu et al. 2021, "LoRA: Low-rank adaptation of large language models").
// The parameters have the names of the package PEFT: lora_A.weight and lora_B.weight, after the name of the
// layer.
#pragma once

#include <string>
#include <vector>

#include "models/layers/layers.h"

namespace tapeformer {

struct LowRankOptions {
  int64_t rank = 8;
  double alpha = 16;   // the product of the adapter is multiplied by alpha / rank
  double dropout = 0;  // of the inputs of the adapters
};

// The product alpha / rank b a, which a layer adds to its weight. `a` (rank, in) is initialised from
// U(-1/√in, 1/√in), and `b` (out, rank) to 0, so that a new adapter changes nothing.
class LowRankAdapter final : public Module {
 public:
  // `name` is the full name of the layer, which names the random stream of the dropout.
  LowRankAdapter(int64_t in, int64_t out, const LowRankOptions& options, const std::string& name);
  double scale() const { return options_.alpha / static_cast<double>(options_.rank); }
  // Returns alpha / rank b a, (out, in).
  Tensor compute_product() const;
  // Returns the mask of the inputs.
  DropoutMask make_mask(const AdapterContext& context) const;

  Tensor a, b;

 private:
  LowRankOptions options_;
  std::string stream_name_;
};

// Adds the results of the adapters of `layers` to y (…, sum of the outs), the results of the layers without
// adapters. x (…, in) is the input of all layers. The layers share one mask of dropout. y has the dtype of
// the weights.
Tensor add_adapters(const std::vector<const Linear*>& layers, const Tensor& x, Tensor y,
                    const AdapterContext& context);

// Adds adapters to the linear layers with these full names. Must be called before parameters() is used.
// Throws std::invalid_argument if there is no such layer.
void add_low_rank_adapters(Module& model, const std::vector<std::string>& layers,
                           const LowRankOptions& options);
// Returns the full names of the linear layers that can have adapters.
std::vector<std::string> list_adaptable_layers(Module& model);
// Adds the product of each adapter to the weight of its layer, and removes the adapters.
void merge_adapters(Module& model);
// Returns whether a tensor of a model is a parameter of an adapter.
bool is_adapter_tensor(const std::string& name);

}  // namespace tapeformer
