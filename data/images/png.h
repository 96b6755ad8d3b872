// PNG files of images and image grids, grey (1 channel) or RGB (3 channels). All functions are thread-safe.
//
// The functions throw ShapeError if a tensor is not an image, std::runtime_error with the path if a file
// cannot be written, and DataError with the path if a file is not a supported PNG image.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Writes an image, (height, width, channels) uint8. The file is created or replaced atomically.
void write_png(const std::filesystem::path& path, const Tensor& image);

// Maximum number of pixels of an image. Readers check this limit before they allocate memory.
inline constexpr int64_t kMaxPixels = 100'000'000;

// Reads a PNG file. Returns a uint8 tensor with shape (height, width, channels). The image is converted to
// grey or RGB with 8 bits per sample. Transparent pixels are blended with black, in their encoded values.
// Samples of 16 bits are read as sRGB, unless the file specifies another encoding. Interlaced images with 16
// bits per sample are not supported.
Tensor read_png(const std::filesystem::path& path);
// Decodes a PNG file in memory. `name` is the name of the file in error messages.
Tensor decode_png(const Bytes& bytes, const std::string& name);

struct ImageGridOptions {
  int64_t columns = 0;  // number of columns; 0 selects about as many columns as rows
  int64_t scale = 4;    // a pixel of an image becomes scale x scale pixels of the grid
  int64_t gap = 2;      // number of pixels between and around images
  uint8_t background = 128;
};

// Returns the height and the width, in pixels, of a grid of `count` images. Throws ShapeError if the options
// are invalid or the grid has more than kMaxPixels pixels.
std::pair<int64_t, int64_t> compute_grid_size(int64_t count, int64_t height, int64_t width,
                                              const ImageGridOptions& options = {});

// Arranges images in a grid, row by row from the top left. `images` is a uint8 tensor with shape
// (count, height * width * channels). Returns the grid as one image, a uint8 tensor with shape
// (grid height, grid width, channels).
Tensor make_image_grid(const Tensor& images, int64_t height, int64_t width, int64_t channels,
                       const ImageGridOptions& options = {});

}  // namespace tapeformer
