// Readers of the files of image data sets. MNIST has pairs of IDX files, and CIFAR-10 has files of binary
// records. An ImageFiles object contains paths and sizes, but no images, and is thread-safe.
//
// Functions throw DataError with the path for missing or corrupt files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/tensor.h"
#include "data/sets/catalogue.h"

namespace tapeformer {

enum class ImagePart { train, test };

struct LabelledImages {
  Tensor pixels;  // (count, height * width * channels) uint8
  Tensor labels;  // (count,) int64
};

class ImageFiles {
 public:
  ImageFiles() = default;
  ImageFiles(const ImageFiles&) = delete;
  ImageFiles& operator=(const ImageFiles&) = delete;
  virtual ~ImageFiles() = default;

  virtual int64_t count_images(ImagePart part) const = 0;
  // Returns the images [first, last) of the training or test files.
  virtual LabelledImages read_images(ImagePart part, int64_t first, int64_t last) const = 0;

  int64_t height = 0, width = 0, channels = 0;
};

// Opens the files of a data set in `folder`. Reads only headers.
std::unique_ptr<const ImageFiles> open_image_files(const CatalogueEntry& set,
                                                   const std::filesystem::path& folder);

}  // namespace tapeformer
