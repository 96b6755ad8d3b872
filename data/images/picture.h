// Conversion of pictures of any size to square images, by cropping at the centre and resampling. All
// functions are thread-safe.
#pragma once

#include <filesystem>

#include "core/tensor.h"

namespace tapeformer {

// Returns whether a file name has the extension of an image format. The result is also true for formats that
// read_picture() rejects, such as GIF and HEIC.
bool is_picture_name(const std::filesystem::path& path);

// Reads a PNG or JPEG file. Returns a uint8 tensor with shape (height, width, channels), where `channels` is
// 1 (grey) or 3 (RGB). The format is detected by the contents of the file. The picture is upright: its
// orientation in EXIF data, if it has one, is applied. Throws DataError with the path for
// other formats, animated pictures, damaged files and images with more than kMaxPixels pixels
// (data/images/png.h).
Tensor read_picture(const std::filesystem::path& path);

// Returns the grey value of an RGB pixel, computed with the weights of ITU-R BT.601. Halves are rounded up.
uint8_t convert_to_grey(double red, double green, double blue);

// Crops a picture to the largest centred square and reduces the square to size x size pixels. `picture` is a
// uint8 tensor with shape (height, width, 1) or (height, width, 3). Returns a uint8 tensor with shape
// (size, size, channels). Each output pixel is the mean of the input pixels that it covers, weighted by the
// covered areas. If `channels` differs from the number of channels of the picture, converts RGB to grey or
// grey to RGB. Throws ShapeError if the square is smaller than size x size.
Tensor crop_and_resize_to_square(const Tensor& picture, int64_t size, int64_t channels);

}  // namespace tapeformer
