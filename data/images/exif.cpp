#include "data/images/exif.h"

#include <algorithm>
#include <cstdint>

namespace tapeformer {
namespace {

constexpr size_t kTagBytes = 12;
constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;

// A TIFF structure. Numbers outside the data are 0.
struct Tiff {
  std::string_view data;
  bool big_endian;

  uint32_t number(size_t at, size_t count) const {
    if (at > data.size() || count > data.size() - at) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i)
      value = value << 8 | static_cast<uint8_t>(data[at + (big_endian ? i : count - 1 - i)]);
    return value;
  }
};

}  // namespace

int parse_exif_orientation(std::string_view exif) {
  if (exif.starts_with(kExifPrefix)) exif.remove_prefix(kExifPrefix.size());
  const Tiff tiff{exif, exif.starts_with("MM")};
  if ((!tiff.big_endian && !exif.starts_with("II")) || tiff.number(2, 2) != 42) return 1;
  const size_t directory = tiff.number(4, 4), count = tiff.number(directory, 2);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + i * kTagBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.number(entry + 2, 2) == kShort ? tiff.number(entry + 8, 2) : 0;
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Tensor make_upright(const Tensor& picture, int orientation) {
  if (orientation == 1) return picture;
  const bool exchanges_axes = orientation >= 5;
  const bool reverses_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool reverses_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const int64_t rows = picture.size(0), columns = picture.size(1), channels = picture.size(2);
  const int64_t height = exchanges_axes ? columns : rows, width = exchanges_axes ? rows : columns;
  const Tensor upright = Tensor::empty({height, width, channels}, DType::uint8);
  const auto* const source = picture.data<uint8_t>();
  auto* target = upright.data<uint8_t>();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const int64_t row = exchanges_axes ? x : y, column = exchanges_axes ? y : x;
      const int64_t from = (reverses_rows ? rows - 1 - row : row) * columns +
                           (reverses_columns ? columns - 1 - column : column);
      target = std::copy_n(source + from * channels, channels, target);
    }
  return upright;
}

}  // namespace tapeformer
