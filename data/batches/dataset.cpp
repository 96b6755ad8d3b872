#include "data/batches/dataset.h"

#include <algorithm>

#include "core/base/errors.h"
#include "data/files/checksum.h"
#include "data/sets/catalogue.h"

namespace tapeformer {

void require_split(const std::string& split) {
  const std::vector<std::string> splits = {"train", "valid", "test"};
  if (std::find(splits.begin(), splits.end(), split) == splits.end())
    throw ConfigError(describe_unknown_name(split, "a split", splits));
}

std::string Dataset::compute_digest() const {
  constexpr int64_t kExamples = 64;
  const int64_t count = std::min(size(), kExamples);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * size() / count);
  const Batch examples = batch(indices);
  Checksum checksum;
  for (const Tensor& tensor : {examples.inputs(), examples.source})
    if (tensor.defined()) checksum.append(tensor.raw_data(), static_cast<size_t>(tensor.bytes()));
  return concat_text(size(), " examples of ", info().name, " ", info().split, ", CRC-32 ",
                     format_crc32(checksum.crc32));
}

void Dataset::check_indices(std::span<const int64_t> indices) const {
  const int64_t count = size();
  for (const int64_t index : indices)
    check(index >= 0 && index < count, "Dataset::batch", "index ", index, " is outside the ", count,
          " examples of ", info().name, " ", info().split);
}

}  // namespace tapeformer
