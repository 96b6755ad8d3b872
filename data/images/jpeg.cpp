#include "data/images/jpeg.h"

#ifdef TAPEFORMER_JPEG
#include <jpeglib.h>
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE

#include <jerror.h>  // after jpeglib.h
#endif

#include "core/base/errors.h"
#include "data/images/exif.h"
#include "data/images/png.h"

namespace tapeformer {

#ifdef TAPEFORMER_JPEG
namespace {

// Maximum number of scans in a progressive JPEG file. Each scan can change all pixels, so the limit bounds
// the decoding time.
constexpr int kMaxScans = 200;

constexpr int kExifMarker = JPEG_APP0 + 1;

// State of a JPEG decoder. libjpeg calls the callbacks in this file, which get the state from the field
// `client_data` of `info`. If an error occurs, the callbacks call longjmp with `on_error`. longjmp does not
// call destructors, so a function must not create objects with destructors after it has called setjmp.
struct Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf on_error;
  bool checks_end = true;  // whether the end of the file before the marker of the end is an error
  char message[JMSG_LENGTH_MAX];
};

Decoder& get_decoder(j_common_ptr info) {
  return *static_cast<Decoder*>(info->client_data);
}

[[noreturn]] void fail(j_common_ptr info) {
  Decoder& decoder = get_decoder(info);
  info->err->format_message(info, decoder.message);
  std::longjmp(decoder.on_error, 1);
}

// Treats warnings as errors, except warnings about files whose pixels are complete.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return;
    case JWRN_JPEG_EOF:
      if (!get_decoder(info).checks_end) return;
      break;
  }
  fail(info);
}

void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  Decoder& decoder = get_decoder(info);
  std::snprintf(decoder.message, sizeof decoder.message, "it has more than %d scans", kMaxScans);
  std::longjmp(decoder.on_error, 1);
}

// Reads the header. Returns false and sets decoder.message if the header is damaged.
bool read_header(Decoder& decoder, const Bytes& bytes) {
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = fail;
  decoder.errors.emit_message = on_message;
  decoder.progress.progress_monitor = on_progress;
  decoder.info.client_data = &decoder;
  if (setjmp(decoder.on_error)) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.info.progress = &decoder.progress;
  jpeg_mem_src(&decoder.info, bytes.data(), static_cast<unsigned long>(bytes.size()));
  jpeg_save_markers(&decoder.info, kExifMarker, 0xFFFF);
  jpeg_read_header(&decoder.info, TRUE);
  // In a single scan with Huffman codes, each missing pixel causes the warning JWRN_HIT_MARKER.
  decoder.checks_end = jpeg_has_multiple_scans(&decoder.info) || decoder.info.arith_code;
  return true;
}

int read_orientation(const jpeg_decompress_struct& info) {
  for (const jpeg_marker_struct* marker = info.marker_list; marker; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExifPrefix)) return parse_exif_orientation(data);
  }
  return 1;
}

// Decodes the pixels. Returns false and sets decoder.message if the pixels are damaged.
bool read_pixels(Decoder& decoder, uint8_t* pixels) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.on_error)) return false;
  info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row_bytes = size_t{info.output_width} * static_cast<size_t>(info.output_components);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels + info.output_scanline * row_bytes;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

Tensor decode_jpeg(const Bytes& bytes, const std::string& name) {
  const auto decoder = std::make_unique<Decoder>();
  *decoder = {};
  const std::unique_ptr<jpeg_decompress_struct, void (*)(jpeg_decompress_struct*)> owner(
      &decoder->info, jpeg_destroy_decompress);
  const auto require = [&](bool condition, const std::string& reason) {
    if (!condition) throw DataError(name + ": expected a JPEG image: " + reason);
  };
  const bool has_header = read_header(*decoder, bytes);
  require(has_header, decoder->message);
  const jpeg_decompress_struct& info = decoder->info;
  require(info.num_components == 1 || info.num_components == 3, "it has CMYK colours; convert it to RGB");
  const int64_t height = info.image_height, width = info.image_width;
  require(height * width <= kMaxPixels,
          concat_text("its size of ", height, " x ", width, " exceeds ", kMaxPixels, " pixels"));
  const int orientation = read_orientation(info);  // before jpeg_finish_decompress(), which frees the markers
  const Tensor image = Tensor::empty({height, width, info.num_components}, DType::uint8);
  const bool has_pixels = read_pixels(*decoder, image.data<uint8_t>());
  require(has_pixels, decoder->message);
  return make_upright(image, orientation);
}

bool can_decode_jpeg() {
  return true;
}

#else

bool can_decode_jpeg() {
  return false;
}

Tensor decode_jpeg(const Bytes&, const std::string& name) {
  throw DataError(name +
                  ": this build cannot read JPEG files; install libjpeg-turbo (Debian: libjpeg-dev) and "
                  "build again");
}

#endif

}  // namespace tapeformer
