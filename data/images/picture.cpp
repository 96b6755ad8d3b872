#include "data/images/picture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/errors.h"
#include "data/files/file.h"
#include "data/images/jpeg.h"
#include "data/images/png.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxPictureBytes = int64_t{1} << 30;
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n", kJpegStart = "\xff\xd8\xff";

// An image format that is recognized but not supported. `start` contains the first bytes of files in this
// format.
struct Format {
  std::string_view start, name;
};
constexpr std::array<Format, 5> kOtherFormats{{{"GIF8", "GIF"},
                                               {"RIFF", "WebP"},
                                               {"BM", "BMP"},
                                               {"II*\0", "TIFF"},
                                               {std::string_view("MM\0*", 4), "TIFF"}}};

// Throws DataError if a PNG file has an animation control chunk before its pixels.
void refuse_animation(const Bytes& bytes, const std::string& name) {
  // A PNG chunk consists of kHead bytes with its length and type, its data, and kCheck bytes with a checksum.
  constexpr size_t kHead = 8, kCheck = 4;
  for (size_t at = kPngStart.size(); at + kHead <= bytes.size();) {
    const std::string_view type(reinterpret_cast<const char*>(bytes.data()) + at + 4, 4);
    if (type == "acTL") throw DataError(name + ": is an animated PNG; save one frame as a picture");
    if (type == "IDAT") return;
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
    at += kHead + length + kCheck;
  }
}

// The weights of the input pixels that an output pixel covers along one axis. weights[j] is the weight of
// input pixel first + j. The sum of the weights is 1.
struct AxisWeights {
  int64_t first;
  std::vector<double> weights;
};

std::vector<AxisWeights> axis_weights(int64_t from, int64_t to) {
  std::vector<AxisWeights> all;
  for (int64_t i = 0; i < to; ++i) {
    // The axis has `from` input pixels and `to` output pixels. The unit of length is chosen so that all
    // positions are integers: an input pixel has the width `to`, and an output pixel has the width `from`.
    // Output pixel i covers the range from `begin` to `end`.
    const int64_t begin = i * from, end = begin + from;
    AxisWeights pixel_weights{begin / to, {}};
    for (int64_t pixel = pixel_weights.first; pixel * to < end; ++pixel) {
      const int64_t overlap = std::min(end, (pixel + 1) * to) - std::max(begin, pixel * to);
      pixel_weights.weights.push_back(static_cast<double>(overlap) / static_cast<double>(from));
    }
    all.push_back(std::move(pixel_weights));
  }
  return all;
}

uint8_t round_to_byte(double x) {
  return static_cast<uint8_t>(std::clamp(std::floor(x + 0.5), 0.0, 255.0));
}

// Converts a pixel with `from` channels to a pixel with `to` channels, rounded to bytes.
void convert_pixel(const double* source, int64_t from, int64_t to, uint8_t* target) {
  if (from == 3 && to == 1)
    *target = convert_to_grey(source[0], source[1], source[2]);
  else
    for (int64_t c = 0; c < to; ++c) target[c] = round_to_byte(source[from == 1 ? 0 : c]);
}

}  // namespace

uint8_t convert_to_grey(double red, double green, double blue) {
  return round_to_byte(0.299 * red + 0.587 * green + 0.114 * blue);
}

bool is_picture_name(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 9> kExtensions{".png", ".jpg",  ".jpeg", ".gif", ".webp",
                                                        ".bmp", ".tiff", ".tif",  ".apng"};
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

Tensor read_picture(const std::filesystem::path& path) {
  const Bytes bytes = read_bytes(path, kMaxPictureBytes);
  const std::string_view text = view_as_text(bytes, bytes.size());
  const std::string name = path.string();
  if (text.starts_with(kPngStart)) {
    refuse_animation(bytes, name);
    return decode_png(bytes, name);
  }
  if (text.starts_with(kJpegStart)) return decode_jpeg(bytes, name);
  for (const Format& format : kOtherFormats)
    if (text.starts_with(format.start))
      throw DataError(concat_text(name, ": is a ", format.name, " file; convert it to PNG or JPEG"));
  throw DataError(name + (bytes.empty() ? ": is empty" : ": is neither a PNG nor a JPEG file"));
}

Tensor crop_and_resize_to_square(const Tensor& picture, int64_t size, int64_t channels) {
  const int64_t height = picture.size(0), width = picture.size(1), from = picture.size(2);
  const int64_t side = std::min(height, width);
  check(side >= size && size > 0, "crop_and_resize_to_square", "a picture of ", height, " x ", width,
        " is smaller than ", size, " x ", size);
  const int64_t top = (height - side) / 2, left = (width - side) / 2;
  const std::vector<AxisWeights> axis = axis_weights(side, size);
  const Tensor image = Tensor::empty({size, size, channels}, DType::uint8);
  const auto* const pixels = picture.data<uint8_t>();
  std::vector<double> row(static_cast<size_t>(side * from));  // weighted mean of the input rows
  for (int64_t y = 0; y < size; ++y) {
    std::fill(row.begin(), row.end(), 0.0);
    const AxisWeights& rows = axis[static_cast<size_t>(y)];
    for (size_t j = 0; j < rows.weights.size(); ++j) {
      const uint8_t* const source =
          pixels + ((top + rows.first + static_cast<int64_t>(j)) * width + left) * from;
      for (size_t i = 0; i < row.size(); ++i) row[i] += rows.weights[j] * source[i];
    }
    for (int64_t x = 0; x < size; ++x) {
      const AxisWeights& columns = axis[static_cast<size_t>(x)];
      std::array<double, 3> pixel{};
      for (size_t j = 0; j < columns.weights.size(); ++j)
        for (int64_t c = 0; c < from; ++c)
          pixel[static_cast<size_t>(c)] +=
              columns.weights[j] *
              row[static_cast<size_t>((columns.first + static_cast<int64_t>(j)) * from + c)];
      convert_pixel(pixel.data(), from, channels, image.data<uint8_t>() + (y * size + x) * channels);
    }
  }
  return image;
}

}  // namespace tapeformer
