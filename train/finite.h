// Checks that the tensors of a model or an optimizer are finite numbers.
#pragma once

#include <optional>
#include <string>

#include "models/module.h"

namespace tapeformer {

// Returns a text about the first tensor with non-finite elements ("NAME has 3 non-finite elements of 256"),
// or nothing if all elements are finite. The tensors have the same floating dtype and the same device. Reads
// every element once, on the device.
std::optional<std::string> find_non_finite(const NamedTensors& tensors);

// Throws DivergedError if the tensors of a checkpoint are not finite. The message contains `checkpoint`, its
// folder.
void check_finite(const NamedTensors& tensors, const std::string& checkpoint);

}  // namespace tapeformer
