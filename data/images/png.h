// PNG files of images and image grids, grey (1 channel) or RGB (3 channels). All functions are thread-safe.
//
// Functions throw ArgumentError if a tensor is not an image, and std::runtime_error with the path if a file
// cannot be written. They throw DataError with the path if a file is not a PNG image.
#pragma once

#include <filesystem>
#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Writes an image, (height, width, channels) uint8. The file is created or replaced atomically.
void write_png(const std::filesystem::path& path, const Tensor& image);

// Maximum number of pixels of an image. Readers check it before they allocate memory.
inline constexpr int64_t kMaxPixels = 100'000'000;

// Reads an image, (height, width, channels) uint8. Any PNG is converted to grey or RGB with 8 bits and no
// transparency. Samples of 16 bits are read as sRGB, unless the file specifies another encoding.
Tensor read_png(const std::filesystem::path& path);
// Returns the image of a PNG file in memory. `name` names the file in errors.
Tensor decode_png(const Bytes& bytes, const std::string& name);

struct ImageGridOptions {
  int64_t columns = 0;  // number of columns; 0 selects about as many columns as rows
  int64_t scale = 4;    // a pixel of an image becomes scale x scale pixels of the grid
  int64_t gap = 2;      // number of pixels between and around images
  uint8_t background = 128;
};

// Arranges images, (count, height * width * channels) uint8, in rows from the top left. Returns the grid as
// one image, (grid height, grid width, channels) uint8.
Tensor make_image_grid(const Tensor& images, int64_t height, int64_t width, int64_t channels,
                       const ImageGridOptions& options = {});

}  // namespace tapeformer
