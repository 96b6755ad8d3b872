#include "data/images/png.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/system/files.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxSide = 1 << 20;
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// Owner of a png_image, the state of libpng's simplified interface. The functions of this interface return
// errors instead of calling longjmp.
class PngImage {
 public:
  PngImage() {
    std::memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
  }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  ~PngImage() { png_image_free(&image); }

  png_image image;
};

void check_size(const char* op, int64_t height, int64_t width) {
  check(height >= 1 && width >= 1 && height <= kMaxSide && width <= kMaxSide && height * width <= kMaxPixels,
        op, "an image of ", height, " x ", width, " is empty or too large");
}

// Returns the colours of an image whose last channel is alpha, over a black background. As in most viewers,
// the encoded values are blended, although light is not proportional to them.
Tensor blend_with_black(const Tensor& image) {
  const int64_t pixels = image.size(0) * image.size(1), colours = image.size(2) - 1;
  const Tensor blended = Tensor::empty({image.size(0), image.size(1), colours}, DType::uint8);
  const auto* source = image.data<uint8_t>();
  auto* target = blended.data<uint8_t>();
  for (int64_t i = 0; i < pixels; ++i, source += colours + 1)
    for (int64_t c = 0; c < colours; ++c)
      *target++ = static_cast<uint8_t>((source[c] * source[colours] + 127) / 255);
  return blended;
}

int64_t count_columns(int64_t count, const ImageGridOptions& options) {
  return options.columns ? options.columns : static_cast<int64_t>(std::ceil(std::sqrt(double(count))));
}

}  // namespace

void write_png(const std::filesystem::path& path, const Tensor& image) {
  check(image.rank() == 3 && image.dtype() == DType::uint8 && image.is_contiguous() &&
            (image.size(2) == 1 || image.size(2) == 3),
        "write_png", "needs contiguous uint8 (height, width, 1 or 3), not ", image.shape().to_string(), " ",
        name_of(image.dtype()));
  check_size("write_png", image.size(0), image.size(1));
  PngImage png;
  png.image.height = static_cast<png_uint_32>(image.size(0));
  png.image.width = static_cast<png_uint_32>(image.size(1));
  png.image.format = image.size(2) == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png.image);
  Bytes bytes(size);
  if (!png_image_write_to_memory(&png.image, bytes.data(), &size, 0, image.raw_data(), 0, nullptr))
    throw std::runtime_error(concat_text("cannot write ", path.string(), ": ", png.image.message));
  replace_file(path.string(), view_as_text(bytes, size));
}

Tensor read_png(const std::filesystem::path& path) {
  return decode_png(read_bytes(path, kMaxFileBytes), path.string());
}

Tensor decode_png(const Bytes& bytes, const std::string& name) {
  const auto fail = [&](const std::string& reason) -> void {
    throw DataError(name + ": expected a PNG image: " + reason);
  };
  PngImage png;
  if (!png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size())) fail(png.image.message);
  constexpr size_t kBitDepth = 24, kInterlace = 28;  // offsets in the file
  if (bytes[kBitDepth] == 16 && bytes[kInterlace] != 0)
    fail("it is interlaced and has 16 bits per sample; convert it to 8 bits");
  const int64_t height = png.image.height, width = png.image.width;
  if (height > kMaxSide || width > kMaxSide || height * width > kMaxPixels)
    fail(concat_text("its size of ", height, " x ", width, " exceeds ", kMaxPixels, " pixels"));
  png.image.format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const Tensor image =
      Tensor::empty({height, width, PNG_IMAGE_PIXEL_CHANNELS(png.image.format)}, DType::uint8);
  if (!png_image_finish_read(&png.image, nullptr, image.raw_data(), 0, nullptr)) fail(png.image.message);
  return (png.image.format & PNG_FORMAT_FLAG_ALPHA) != 0 ? blend_with_black(image) : image;
}

std::pair<int64_t, int64_t> compute_grid_size(int64_t count, int64_t height, int64_t width,
                                              const ImageGridOptions& options) {
  const int64_t scale = options.scale, gap = options.gap;
  check(count >= 1, "make_image_grid", "no images");
  check(scale >= 1 && gap >= 0 && options.columns >= 0, "make_image_grid", "scale ", scale, ", gap ", gap,
        " and columns ", options.columns, " must not be negative, and scale must not be 0");
  const int64_t columns = count_columns(count, options), rows = (count + columns - 1) / columns;
  check(scale <= kMaxSide && gap <= kMaxSide && columns <= kMaxSide && rows <= kMaxSide &&
            height <= kMaxSide && width <= kMaxSide,
        "make_image_grid", "scale, gap, columns, rows and image sides are at most ", kMaxSide);
  const int64_t total_height = rows * (height * scale + gap) + gap;
  const int64_t total_width = columns * (width * scale + gap) + gap;
  check_size("make_image_grid", total_height, total_width);
  return {total_height, total_width};
}

Tensor make_image_grid(const Tensor& images, int64_t height, int64_t width, int64_t channels,
                       const ImageGridOptions& options) {
  const int64_t dims = height * width * channels;
  check(images.rank() == 2 && images.size(1) == dims && images.dtype() == DType::uint8 &&
            images.is_contiguous(),
        "make_image_grid", "needs contiguous uint8 (count, ", dims, "), not ", images.shape().to_string(),
        " ", name_of(images.dtype()));
  const int64_t count = images.size(0), scale = options.scale, gap = options.gap;
  const auto [total_height, total_width] = compute_grid_size(count, height, width, options);
  const int64_t columns = count_columns(count, options);
  Tensor grid = Tensor::full({total_height, total_width, channels}, options.background, DType::uint8);
  const auto* source = images.data<uint8_t>();
  auto* target = grid.data<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t top = gap + i / columns * (height * scale + gap);
    const int64_t left = gap + i % columns * (width * scale + gap);
    for (int64_t y = 0; y < height * scale; ++y)
      for (int64_t x = 0; x < width * scale; ++x)
        std::copy_n(source + i * dims + (y / scale * width + x / scale) * channels, channels,
                    target + ((top + y) * total_width + left + x) * channels);
  }
  return grid;
}

}  // namespace tapeformer
