// Checks that the tensors of a model or an optimizer are finite.
#pragma once

#include <optional>
#include <string>

#include "models/layers/module.h"

namespace tapeformer {

// Returns a message about the first tensor with non-finite elements, such as "NAME has 3 non-finite elements
// of 256". Returns std::nullopt if all elements are finite. All tensors must have the same floating dtype and
// device.
std::optional<std::string> find_non_finite(const NamedTensors& tensors);

// Throws DivergenceError if the tensors of a checkpoint are not finite. The message begins with `checkpoint`,
// the folder of the checkpoint.
void check_finite(const NamedTensors& tensors, const std::string& checkpoint);

}  // namespace tapeformer
