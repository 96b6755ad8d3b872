#include "data/images/picture.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "data/images/png.h"
#include "tests/data/images/picture_files.h"
#include "tests/data/support.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string fault(const std::filesystem::path& path) {
  return message_of<DataError>([&] { read_picture(path); });
}

}  // namespace

TEST_CASE("PNG pictures of 8 and 16 bits, plain and interlaced, give the same pixels") {
  const TempDir dir;
  for (const int64_t channels : {1, 3})
    for (const int bits : {8, 16})
      for (const bool interlaced : {false, true}) {
        if (bits == 16 && interlaced) continue;  // decode_png() refuses such files
        const Tensor picture = smooth_picture(21, 34, channels);
        write_file(dir / "p.png", png_bytes(picture, bits, interlaced));
        CAPTURE(concat_text(channels, " ", bits, " ", interlaced));
        CHECK(max_difference(read_picture(dir / "p.png"), picture) <= (bits == 8 ? 0 : 1));
      }
}

TEST_CASE("crop_and_resize_to_square() crops at the centre and averages areas") {
  const Tensor picture = Tensor::from_vector<uint8_t>({9, 1, 2, 9, 9, 3, 5, 9}, {2, 4, 1});
  CHECK(crop_and_resize_to_square(picture, 2, 1).to_vector() == std::vector<double>{1, 2, 3, 5});
  CHECK(crop_and_resize_to_square(picture, 1, 1).to_vector() ==
        std::vector<double>{3});  // 11 / 4 is rounded up
  CHECK(crop_and_resize_to_square(picture, 1, 3).to_vector() == std::vector<double>{3, 3, 3});
  // Each of the 2 x 2 output pixels covers 1.5 x 1.5 input pixels. The value of an output pixel is a weighted
  // mean of one corner pixel with weight 1, two edge pixels with weight 1/2, and the central pixel with
  // weight 1/4.
  const Tensor three = Tensor::from_vector<uint8_t>({0, 90, 0, 0, 0, 0, 0, 0, 180}, {3, 3, 1});
  CHECK(crop_and_resize_to_square(three, 2, 1).to_vector() == std::vector<double>{20, 20, 0, 80});
  const Tensor red = Tensor::from_vector<uint8_t>({255, 0, 0}, {1, 1, 3});
  CHECK(crop_and_resize_to_square(red, 1, 1).to_vector() == std::vector<double>{76});
  const Tensor whole = smooth_picture(64, 64, 3);
  CHECK(max_difference(crop_and_resize_to_square(whole, 64, 3), whole) == 0);
  CHECK_THROWS_WITH_AS(crop_and_resize_to_square(picture, 3, 1),
                       doctest::Contains("2 x 4 is smaller than 3 x 3"), ShapeError);
}

TEST_CASE("errors about pictures that are neither JPEG nor still PNG name their format") {
  const TempDir dir;
  const Bytes png = png_bytes(smooth_picture(8, 8, 3), 8, false);
  const auto write = [&](const std::string& name, const auto& bytes) {
    write_file(dir / name, bytes);
    return dir / name;
  };
  CHECK(contains(fault(write("a.png", with_png_chunk(png, "acTL", std::string(8, '\1')))),
                 "is an animated PNG; save one frame as a picture"));
  CHECK(contains(fault(write("deep.png", png_bytes(smooth_picture(8, 8, 3), 16, true))),
                 "it is interlaced and has 16 bits per sample; convert it to 8 bits"));
  CHECK(
      contains(fault(write("a.gif", std::string("GIF89a..."))), "is a GIF file; convert it to PNG or JPEG"));
  CHECK(contains(fault(write("a.webp", std::string("RIFF1234WEBP"))), "is a WebP file"));
  CHECK(contains(fault(write("a.jpg", std::string("hello"))), "is neither a PNG nor a JPEG file"));
  CHECK(contains(fault(write("b.jpg", std::string())), "is empty"));
  CHECK(contains(fault(write("cut.png", Bytes(png.begin(), png.begin() + 60))), "expected a PNG image"));
  CHECK(contains(fault(dir / "none.png"), "no such file"));
  const int64_t before = get_device_allocator().stats().peak_bytes;
  CHECK(contains(fault(write("bomb.png", with_png_size(png, 60000, 60000))),
                 "its size of 60000 x 60000 exceeds 100000000 pixels"));
  CHECK(get_device_allocator().stats().peak_bytes < before + (1 << 20));
  CHECK(is_picture_name("x/y.JPeG"));
  CHECK_FALSE(is_picture_name("x/notes.txt"));
}

#ifdef TAPEFORMER_JPEG
TEST_CASE("baseline, progressive and grey JPEG pictures are read up to compression errors") {
  const TempDir dir;
  for (const int64_t channels : {1, 3})
    for (const bool progressive : {false, true}) {
      const Tensor picture = smooth_picture(40, 56, channels);
      write_file(dir / "p.jpg", jpeg_bytes(picture, progressive));
      const Tensor found = read_picture(dir / "p.jpg");
      CHECK(found.shape() == picture.shape());
      CHECK(max_difference(found, picture) < 16);
    }
}

TEST_CASE("damaged JPEG files, CMYK colours and huge sizes are faults") {
  const TempDir dir;
  const Bytes whole = jpeg_bytes(smooth_picture(40, 56, 3));
  for (size_t cut = 3; cut < whole.size() - 2; cut += 7) {
    CAPTURE(cut);
    write_file(dir / "cut.jpg", Bytes(whole.begin(), whole.begin() + static_cast<int64_t>(cut)));
    CHECK(contains(fault(dir / "cut.jpg"), (dir / "cut.jpg").string() + ": expected a JPEG image: "));
  }
  write_file(dir / "cmyk.jpg", jpeg_bytes(smooth_picture(16, 16, 4)));
  CHECK(contains(fault(dir / "cmyk.jpg"), "it has CMYK colours; convert it to RGB"));
  Bytes bomb = whole;
  for (size_t i = 0; i + 9 < bomb.size(); ++i)
    // The marker FF C0 starts the frame header. It is followed by 2 bytes with the length, 1 byte with the
    // precision, 2 bytes with the height and 2 bytes with the width.
    if (bomb[i] == 0xFF && bomb[i + 1] == 0xC0) {
      std::fill_n(bomb.begin() + static_cast<int64_t>(i) + 5, 4, uint8_t{0xFF});
      break;
    }
  write_file(dir / "bomb.jpg", bomb);
  const int64_t before = get_device_allocator().stats().peak_bytes;
  const std::string text = fault(dir / "bomb.jpg");
  CHECK(contains(text, "expected a JPEG image: "));
  CAPTURE(text);
  CHECK((contains(text, "exceeds 100000000 pixels") || contains(text, "Maximum supported image dimension")));
  CHECK(get_device_allocator().stats().peak_bytes < before + (1 << 20));
}
#endif
