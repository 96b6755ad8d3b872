// PNG files of images and image grids, grey (1 channel) or RGB (3). Written whole or not at all
// (data/files/file.h). No state; any thread.
//
// Errors: ShapeError for tensors that are no images; std::runtime_error with the path for what cannot be
// written; DataError with the path for what is no PNG.
#pragma once

#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// image: (height, width, channels) uint8.
void write_png(const std::filesystem::path& path, const Tensor& image);

// (height, width, channels) uint8; any PNG becomes grey or RGB of 8 bits, without transparency.
Tensor read_png(const std::filesystem::path& path);

struct GridOptions {
  int64_t columns = 0;  // 0: a near square
  int64_t scale = 4;    // each pixel becomes scale x scale
  int64_t gap = 2;      // pixels between images and around them
  uint8_t background = 128;
};

// The images (count, height * width * channels) uint8, row by row from the top left, as one image
// (rows, columns, channels) uint8.
Tensor image_grid(const Tensor& images, int64_t height, int64_t width, int64_t channels,
                  const GridOptions& options = {});

}  // namespace tapeformer
