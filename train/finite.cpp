#include "train/finite.h"

#include <algorithm>
#include <cmath>

#include "ops/optimizer_step.h"

namespace tapeformer {

std::optional<std::string> find_non_finite(const NamedTensors& tensors) {
  const auto squares = compute_squared_norms(strip_names(tensors)).to_vector();
  for (size_t i = 0; i < squares.size(); ++i) {
    if (std::isfinite(squares[i])) continue;
    const auto& [name, tensor] = tensors[i];
    const auto values = tensor.to_vector();
    const auto count =
        std::count_if(values.begin(), values.end(), [](double v) { return !std::isfinite(v); });
    if (count > 0) return concat_text(name, " has ", count, " non-finite elements of ", tensor.numel());
  }
  return {};
}

void check_finite(const NamedTensors& tensors, const std::string& checkpoint) {
  if (const auto found = find_non_finite(tensors))
    throw DivergenceError(checkpoint + ": " + *found + ": the checkpoint cannot be used");
}

}  // namespace tapeformer
