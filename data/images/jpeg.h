// Reader of JPEG files, which uses libjpeg-turbo, an optional dependency.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Returns the image of a JPEG file in memory, (height, width, channels) uint8, grey or RGB. `name` names the
// file in errors. Thread-safe. Throws DataError for damaged and truncated files, for CMYK colours, and in a
// build without a JPEG library. Throws DataError for images of more than kMaxPixels before memory is
// allocated.
Tensor decode_jpeg(const Bytes& bytes, const std::string& name);

}  // namespace tapeformer
