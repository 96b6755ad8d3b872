#include "data/dataset.h"

#include <algorithm>
#include <cstring>

#include "core/options.h"
#include "data/catalogue.h"
#include "data/images/images.h"
#include "data/symbol_tasks.h"

namespace tapeformer {
namespace {

constexpr int64_t kByteValues = 256;

class ImageDataset : public Dataset {
 public:
  explicit ImageDataset(ImageSet images) : images_(std::move(images)) {
    info_ = {images_.name,   images_.split, kByteValues,     images_.pixels.size(1) - 1,
             images_.height, images_.width, images_.channels};
  }

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return images_.pixels.size(0); }

  Batch batch(std::span<const int64_t> indices) const override {
    check_indices(indices);
    const auto count = static_cast<int64_t>(indices.size());
    const int64_t dims = images_.pixels.size(1);
    Batch batch;
    batch.tokens = Tensor::empty({count, dims}, DType::uint8);
    batch.labels = Tensor::empty({count}, DType::int64);
    const auto* pixels = images_.pixels.data<uint8_t>();
    const auto* labels = images_.labels.data<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = indices[static_cast<size_t>(i)];
      std::memcpy(batch.tokens.data<uint8_t>() + i * dims, pixels + index * dims, static_cast<size_t>(dims));
      batch.labels.data<int64_t>()[i] = labels[index];
    }
    return batch;
  }

 private:
  ImageSet images_;
  DatasetInfo info_;
};

void check_name(const std::string& name) {
  std::vector<std::string> names = {"copy", "duplication"};
  for (const KnownSet& set : known_sets()) names.emplace_back(set.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw ConfigError(unknown_name_text(name, "a data set", names));
}

// The synthetic set of a name; null for the names of images.
std::shared_ptr<const Dataset> make_symbol_task(const DatasetOptions& options) {
  const SymbolTaskOptions task{options.split, options.max_length, options.symbols, options.limit,
                               options.seed};
  if (options.name == "copy") return std::make_shared<CopyTask>(task);
  if (options.name == "duplication") return std::make_shared<DuplicationTask>(task);
  return nullptr;
}

}  // namespace

void Dataset::check_indices(std::span<const int64_t> indices) const {
  const int64_t count = size();
  for (const int64_t index : indices)
    check(index >= 0 && index < count, "Dataset::batch", "index ", index, " is outside the ", count,
          " examples of ", info().name, " ", info().split);
}

DatasetInfo describe_dataset(const DatasetOptions& options) {
  check_name(options.name);
  if (const auto task = make_symbol_task(options)) return task->info();
  const KnownSet& set = known_set(options.name);
  check_downscale(options.name, set.height, set.width, options.downscale);
  const int64_t height = set.height / options.downscale, width = set.width / options.downscale;
  return {options.name, options.split, kByteValues, height * width * set.channels - 1,
          height,       width,         set.channels};
}

std::shared_ptr<const Dataset> make_dataset(const DatasetOptions& options) {
  check_name(options.name);
  if (auto task = make_symbol_task(options)) return task;
  return std::make_shared<ImageDataset>(
      load_images(options.name, options.split,
                  ImageOptions{options.data_dir, options.validation, options.limit, options.downscale}));
}

}  // namespace tapeformer
