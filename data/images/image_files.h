// The two file layouts of image sets behind one interface: IDX pairs (the MNIST family) and the binary
// CIFAR-10 records. An ImageFiles describes files on disk and holds no image; any thread.
//
// Errors: DataError names the file and what was expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "core/tensor.h"
#include "data/catalogue.h"

namespace tapeformer {

enum class ImagePart { train, test };

struct LabelledPixels {
  Tensor pixels;  // (count, height * width * channels) uint8
  Tensor labels;  // (count,) int64
};

class ImageFiles {
 public:
  ImageFiles() = default;
  ImageFiles(const ImageFiles&) = delete;
  ImageFiles& operator=(const ImageFiles&) = delete;
  virtual ~ImageFiles() = default;

  virtual int64_t count(ImagePart part) const = 0;
  // Images [first, last) of a part.
  virtual LabelledPixels read(ImagePart part, int64_t first, int64_t last) const = 0;

  int64_t height = 0, width = 0, channels = 0;
};

// Reads the headers only.
std::unique_ptr<const ImageFiles> open_image_files(const KnownSet& set, const std::filesystem::path& folder);

}  // namespace tapeformer
