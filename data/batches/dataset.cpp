#include "data/batches/dataset.h"

#include "core/base/errors.h"

namespace tapeformer {

void Dataset::check_indices(std::span<const int64_t> indices) const {
  const int64_t count = size();
  for (const int64_t index : indices)
    check(index >= 0 && index < count, "Dataset::batch", "index ", index, " is outside the ", count,
          " examples of ", info().name, " ", info().split);
}

}  // namespace tapeformer
