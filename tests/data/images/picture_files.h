// Functions that create pictures and encode them with libjpeg and libpng, for tests.
#pragma once

#include <png.h>
#include <zlib.h>

#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef TAPEFORMER_JPEG
#include <jpeglib.h>
#endif

#include "core/tensor.h"
#include "data/files/file.h"

namespace tapeformer::test {

// Returns a uint8 picture (height, width, channels) whose samples increase from left to right and from top to
// bottom.
inline Tensor smooth_picture(int64_t height, int64_t width, int64_t channels) {
  const Tensor picture = Tensor::empty({height, width, channels}, DType::uint8);
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        picture.data<uint8_t>()[(y * width + x) * channels + c] =
            static_cast<uint8_t>(30 * c + 100 * y / height + 90 * x / width);
  return picture;
}

#ifdef TAPEFORMER_JPEG
// Returns a JPEG file of a picture (height, width, channels) with 1 channel (grey), 3 (RGB) or 4 (CMYK).
inline Bytes jpeg_bytes(const Tensor& picture, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(picture.size(0));
  info.image_width = static_cast<JDIMENSION>(picture.size(1));
  info.input_components = static_cast<int>(picture.size(2));
  info.in_color_space = picture.size(2) == 1 ? JCS_GRAYSCALE : picture.size(2) == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = picture.data<uint8_t>() + int64_t{info.next_scanline} * picture.size(1) * picture.size(2);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes bytes(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}
#endif

// Returns the JPEG file `bytes` with a segment inserted at `offset`, by default at the start.
inline Bytes with_jpeg_segment(Bytes bytes, uint8_t marker, const std::string& data, int64_t offset = 2) {
  const size_t size = data.size() + 2;
  std::string segment{'\xFF', static_cast<char>(marker), static_cast<char>(size >> 8),
                      static_cast<char>(size)};
  segment += data;
  bytes.insert(bytes.begin() + offset, segment.begin(), segment.end());
  return bytes;
}

// Returns the position of the first marker FF `marker` in a JPEG file.
inline int64_t find_jpeg_marker(const Bytes& bytes, uint8_t marker) {
  const size_t at = view_as_text(bytes, bytes.size()).find(std::string{'\xFF', static_cast<char>(marker)});
  if (at == std::string_view::npos) throw std::runtime_error("no such marker");
  return static_cast<int64_t>(at);
}

// Returns a TIFF structure with a directory of two entries, a resolution and an orientation.
inline std::string exif_data(int orientation, bool big_endian) {
  std::string data = big_endian ? "MM" : "II";
  const auto add = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      data += static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - i : i) & 0xFF);
  };
  add(42, 2);
  add(8, 4);  // position of the directory
  add(2, 2);  // number of entries: tag, type, count and value
  for (const auto& [tag, value] : {std::pair{0x0128, 2}, {0x0112, orientation}}) {
    add(static_cast<uint32_t>(tag), 2);
    add(3, 2);
    add(1, 4);
    add(static_cast<uint32_t>(value), 2);
    add(0, 2);
  }
  add(0, 4);  // no further directory
  return data;
}

// Returns a PNG file of a picture (height, width, channels) with 1 channel (grey), 2 (grey, alpha), 3 (RGB)
// or 4 (RGB, alpha) and 8 or 16 bits per sample. A sample of 16 bits is 257 times the sample of 8 bits.
inline Bytes png_bytes(const Tensor& picture, int bits, bool interlaced) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  if (setjmp(png_jmpbuf(png))) throw std::runtime_error("libpng failed");
  png_set_write_fn(
      png, &bytes,
      [](png_structp self, png_bytep data, size_t size) {
        auto* const target = static_cast<Bytes*>(png_get_io_ptr(self));
        target->insert(target->end(), data, data + size);
      },
      nullptr);
  const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                       PNG_COLOR_TYPE_RGB_ALPHA};
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.size(1)),
               static_cast<png_uint_32>(picture.size(0)), bits, types[picture.size(2) - 1],
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  const auto row_samples = static_cast<size_t>(picture.size(1) * picture.size(2));
  const auto sample_bytes = static_cast<size_t>(bits / 8);
  std::vector<Bytes> rows(static_cast<size_t>(picture.size(0)), Bytes(row_samples * sample_bytes));
  std::vector<png_bytep> pointers;
  for (size_t y = 0; y < rows.size(); ++y) {
    for (size_t i = 0; i < rows[y].size(); ++i)
      rows[y][i] = picture.data<uint8_t>()[y * row_samples + i / sample_bytes];
    pointers.push_back(rows[y].data());
  }
  png_set_rows(png, info, pointers.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// Returns the PNG file `bytes` with a chunk of the type `type` inserted after the header.
inline Bytes with_png_chunk(Bytes bytes, const std::string& type, const std::string& data) {
  const auto big_endian = [](uint32_t value) {
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
    return text;
  };
  const std::string body = type + data;
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
  const std::string chunk = big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(crc);
  constexpr int64_t kAfterHeader = 8 + 25;
  bytes.insert(bytes.begin() + kAfterHeader, chunk.begin(), chunk.end());
  return bytes;
}

// Returns the PNG file `bytes` with the size in the header changed to width x height pixels.
inline Bytes with_png_size(Bytes bytes, uint32_t width, uint32_t height) {
  for (int i = 0; i < 4; ++i) {
    bytes[static_cast<size_t>(16 + i)] = static_cast<uint8_t>(width >> (24 - 8 * i));
    bytes[static_cast<size_t>(20 + i)] = static_cast<uint8_t>(height >> (24 - 8 * i));
  }
  const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
  for (int i = 0; i < 4; ++i) bytes[static_cast<size_t>(29 + i)] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  return bytes;
}

}  // namespace tapeformer::test
