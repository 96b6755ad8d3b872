// The orientation of pictures in EXIF data (Exif 2.32, section 4.6.4 A). Cameras store the pixels as the
// sensor reads them, and the orientation says how viewers turn and mirror them. All functions are
// thread-safe.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace tapeformer {

// The first bytes of a JPEG marker APP1 with EXIF data.
inline constexpr std::string_view kExifPrefix{"Exif\0\0", 6};

// Returns the orientation, 1 to 8, in EXIF data with or without kExifPrefix. Returns 1, upright, if the data
// is damaged or contains no valid orientation.
int parse_exif_orientation(std::string_view exif);

// Turns and mirrors a picture, a uint8 tensor with shape (height, width, channels), so that it is upright.
// The orientations 5 to 8 exchange height and width.
Tensor make_upright(const Tensor& picture, int orientation);

}  // namespace tapeformer
