#include "data/images/picture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/base/errors.h"
#include "data/files/checksum.h"
#include "data/files/file.h"
#include "data/images/exif.h"
#include "data/images/jpeg.h"
#include "data/images/png.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxPictureBytes = int64_t{1} << 30;
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n", kJpegStart = "\xff\xd8\xff";

// An image format that is recognized but not supported. Files in this format contain `start` at `offset`.
struct Format {
  size_t offset;
  std::string_view start, name;
};
constexpr std::array<Format, 10> kOtherFormats{{{0, "GIF8", "a GIF"},
                                                {0, "RIFF", "a WebP"},
                                                {0, "BM", "a BMP"},
                                                {0, std::string_view("II*\0", 4), "a TIFF"},
                                                {0, std::string_view("MM\0*", 4), "a TIFF"},
                                                {4, "ftypavi", "an AVIF"},
                                                {4, "ftyphei", "a HEIC"},
                                                {4, "ftyphev", "a HEIC"},
                                                {4, "ftypmif1", "a HEIC"},
                                                {4, "JXL ", "a JPEG XL"}}};

// Extensions of pictures, also of pictures that read_picture() rejects.
constexpr std::string_view kExtensions[] = {
    ".png",  ".apng", ".jpg", ".jpeg", ".jpe",  ".jif", ".jfif", ".jfi", ".pjpeg", ".pjp",  ".gif",
    ".webp", ".bmp",  ".dib", ".tif",  ".tiff", ".ico", ".tga",  ".psd", ".svg",   ".heic", ".heif",
    ".hif",  ".avif", ".jxl", ".jp2",  ".jpx",  ".j2k", ".jpf",  ".qoi", ".pbm",   ".pgm",  ".ppm",
    ".pnm",  ".dng",  ".cr2", ".cr3",  ".nef",  ".arw", ".orf",  ".rw2", ".raf"};

// Returns the data of the first intact chunk of a type in a PNG file, or an empty text.
std::string_view find_png_chunk(std::string_view png, std::string_view type) {
  // A chunk consists of kHead bytes with its length and type, its data, and kCheck bytes with the CRC-32 of
  // the type and the data.
  constexpr size_t kHead = 8, kCheck = 4;
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(png[at + i]);
    return value;
  };
  for (size_t at = kPngStart.size(); at + kHead + kCheck <= png.size();) {
    const size_t length = number(at);
    if (length > png.size() - at - kHead - kCheck) break;
    if (png.substr(at + 4, 4) == type &&
        compute_checksum(png.substr(at + 4, 4 + length)).crc32 == number(at + kHead + length))
      return png.substr(at + kHead, length);
    at += kHead + length + kCheck;
  }
  return {};
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
  return std::find(std::begin(kExtensions), std::end(kExtensions), extension) != std::end(kExtensions);
}

Tensor read_picture(const std::filesystem::path& path) {
  const Bytes bytes = read_bytes(path, kMaxPictureBytes);
  const std::string_view text = view_as_text(bytes, bytes.size());
  const std::string name = path.string();
  if (text.starts_with(kPngStart)) {
    if (!find_png_chunk(text, "acTL").empty())
      throw DataError(name + ": is an animated PNG; save one frame as a picture");
    return make_upright(decode_png(bytes, name), parse_exif_orientation(find_png_chunk(text, "eXIf")));
  }
  if (text.starts_with(kJpegStart)) return decode_jpeg(bytes, name);
  for (const Format& format : kOtherFormats)
    if (text.size() > format.offset && text.substr(format.offset).starts_with(format.start))
      throw DataError(concat_text(name, ": is ", format.name, " file; convert it to PNG or JPEG"));
  throw DataError(name + (bytes.empty() ? ": is empty"
                                        : ": is neither a PNG nor a JPEG file; convert it to PNG or JPEG"));
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
