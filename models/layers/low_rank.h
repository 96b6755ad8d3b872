// Low-rank adapters of linear layers (Hu et al. 2021, "LoRA: Low-rank adaptation of large language models").
// The parameters have the names of the package PEFT: lora_A.weight and lora_B.weight, after the name of the
// layer.
#pragma once

#include <string>
#include <vector>

#include "models/layers/module.h"

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
  // Returns the mask of inputs whose first row is the row `first_row` of the whole batch.
  DropoutMask make_mask(const ForwardContext& context, int64_t first_row) const;

  Tensor a, b;

 private:
  LowRankOptions options_;
  std::string stream_name_;
};

// An adapter of a layer whose results are the columns [column, column + out) of a tensor.
struct PlacedAdapter {
  const LowRankAdapter* adapter;
  int64_t column;
};

// Adds the results of adapters to y (…, columns), the results of their layers without adapters. x (…, in) is
// the input of all layers, whose first row is the row `first_row` of the whole batch. The adapters share one
// mask of dropout; if `context` is null, there is no dropout. y has the dtype of the weights.
Tensor add_adapter_results(const std::vector<PlacedAdapter>& adapters, const Tensor& x, Tensor y,
                           const ForwardContext* context, int64_t first_row);

// Returns whether a tensor of a model is a parameter of an adapter.
bool is_adapter_tensor(const std::string& name);

}  // namespace tapeformer
