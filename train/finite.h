// Checks that the tensors of a model or an optimizer are finite numbers.
#pragma once

#include <optional>
#include <string>

#include "models/module.h"

namespace tapeformer {

// The first tensor that holds NaN or an infinity, as text: "NAME has 3 non-finite elements of 256"; nothing
// if all are finite. The tensors are floating, of one dtype and device. Reads every element once, on the
// device.
std::optional<std::string> find_non_finite(const NamedTensors& tensors);

// Throws DivergedError if the tensors of a checkpoint are not finite. `checkpoint`: its folder, for the
// message.
void check_finite(const NamedTensors& tensors, const std::string& checkpoint);

}  // namespace tapeformer
