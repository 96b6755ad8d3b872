// A reader of JPEG files. The reader uses libjpeg-turbo, which is an optional dependency.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Returns whether this build can decode JPEG files.
bool can_decode_jpeg();

// Decodes a JPEG file in memory. Returns a grey or RGB image as a uint8 tensor with shape
// (height, width, channels), upright by the orientation in its EXIF data. `name` is the name of the file in
// error messages. Thread-safe. Throws DataError for damaged and truncated files, for CMYK colours, for images
// with more than kMaxPixels pixels, and in a build without a JPEG library. Faults outside the pixels, such as
// an unknown revision or superfluous bytes between segments, are ignored. The number of pixels is checked
// before memory for them is allocated.
Tensor decode_jpeg(const Bytes& bytes, const std::string& name);

}  // namespace tapeformer
