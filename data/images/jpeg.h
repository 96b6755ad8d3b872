// Reader of JPEG files.
#pragma once

#include <string>

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer {

// Returns the image of a JPEG file in memory, (height, width, channels) uint8, grey or RGB. `name` is the
// file in errors. Thread-safe. Throws DataError for damaged and truncated files, for CMYK colours, for images
// of more than kMaxPixels, whose size is checked before memory is allocated, and if this build has no JPEG
// library.
Tensor decode_jpeg(const Bytes& bytes, const std::string& name);

}  // namespace tapeformer
