// Pictures of any size as square images: cropped at the centre and resampled. All functions are thread-safe.
#pragma once

#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// Returns whether the extension of a file name is .png, .jpg or .jpeg, or belongs to another image format,
// which read_picture() refuses.
bool is_picture_name(const std::filesystem::path& path);

// Reads a PNG or JPEG file, which is recognised by its contents, as (height, width, channels) uint8, grey or
// RGB. Throws DataError with the path for other formats, animated pictures, damaged files and images of more
// than kMaxPixels.
Tensor read_picture(const std::filesystem::path& path);

// Returns a (size, size, channels) uint8 image of the largest centred square of a picture (height, width, 1
// or 3). An output pixel is the mean of the input over its area, rounded halves up. RGB becomes grey by the
// weights of ITU-R BT.601; grey is copied to all channels. Throws ShapeError if the square is smaller than
// size x size.
Tensor square_image(const Tensor& picture, int64_t size, int64_t channels);

}  // namespace tapeformer
