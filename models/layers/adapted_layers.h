// Functions that add low-rank adapters to the layers of a model, and merge them.
#pragma once

#include <string>
#include <vector>

#include "models/layers/layers.h"
#include "models/layers/low_rank.h"

namespace tapeformer {

// Adds adapters to the linear layers with these full names. Must be called before parameters() is used.
// Throws std::invalid_argument if there is no such layer, or if a layer takes no adapter.
void add_low_rank_adapters(Module& model, const std::vector<std::string>& layers,
                           const LowRankOptions& options);
// Returns the full names of the linear layers that can have adapters.
std::vector<std::string> list_adaptable_layers(Module& model);
// Adds the product of each adapter to the weight of its layer, and removes the adapters.
void merge_adapters(Module& model);

}  // namespace tapeformer
