#include "data/images/exif.h"

#include <doctest/doctest.h>

#include "data/images/picture.h"
#include "tests/data/images/picture_files.h"
#include "tests/data/support.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// The upright pictures of the stored picture 1 2 3 / 4 5 6 for the orientations 1 to 8, row by row.
const std::vector<std::vector<double>> kUpright = {{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1},
                                                   {4, 5, 6, 1, 2, 3}, {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3},
                                                   {6, 3, 5, 2, 4, 1}, {3, 6, 2, 5, 1, 4}};

Tensor stored_picture() {
  return Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {2, 3, 1});
}

Tensor read(const Bytes& bytes) {
  const TempDir dir;
  write_file(dir / "p", bytes);
  return read_picture(dir / "p");
}

}  // namespace

TEST_CASE("PNG pictures are turned and mirrored by their EXIF orientation") {
  const Bytes png = png_bytes(stored_picture(), 8, false);
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool big_endian : {false, true})
      for (const std::string_view prefix : {std::string_view(), kExifPrefix}) {
        CAPTURE(concat_text(orientation, " ", big_endian, " ", prefix));
        const Tensor picture =
            read(with_png_chunk(png, "eXIf", std::string(prefix) + exif_data(orientation, big_endian)));
        CHECK(picture.shape() == (orientation < 5 ? Shape{2, 3, 1} : Shape{3, 2, 1}));
        CHECK(picture.to_vector() == kUpright[static_cast<size_t>(orientation - 1)]);
      }
  // The chunk may also follow the pixels.
  Bytes late = with_png_chunk(png, "eXIf", exif_data(6, false));
  const auto chunk = late.begin() + 8 + 25;
  std::rotate(chunk, chunk + static_cast<int64_t>(late.size() - png.size()), late.end() - 12);
  CHECK(read(late).to_vector() == kUpright[5]);
}

TEST_CASE("damaged EXIF data is ignored") {
  const std::string whole = exif_data(6, true);
  for (size_t size = 0; size < 8 + 2 + 12 + 10; ++size) {
    CAPTURE(size);
    CHECK(parse_exif_orientation(whole.substr(0, size)) == 1);
  }
  for (const int value : {0, 9, 256, 65535}) CHECK(parse_exif_orientation(exif_data(value, true)) == 1);
  for (size_t at = 0; at < whole.size(); ++at)
    for (int bits = 1; bits < 256; ++bits) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ bits);
      const int found = parse_exif_orientation(damaged);
      CHECK((found >= 1 && found <= 8));
    }
  Bytes png = with_png_chunk(png_bytes(stored_picture(), 8, false), "eXIf", whole);
  png[8 + 25 + 8 + whole.size()] ^= 1;  // in the CRC-32 of the chunk
  CHECK(read(png).to_vector() == kUpright[0]);
}

#ifdef TAPEFORMER_JPEG
TEST_CASE("JPEG pictures are turned and mirrored by their EXIF orientation") {
  const Tensor picture = smooth_picture(24, 40, 3);
  const Bytes plain = jpeg_bytes(picture);
  const Tensor decoded = read(plain);
  const std::string xmp = std::string("http://ns.adobe.com/xap/1.0/") + '\0' + "<x:xmpmeta/>";
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool big_endian : {false, true}) {
      CAPTURE(orientation);
      const std::string exif = std::string(kExifPrefix) + exif_data(orientation, big_endian);
      const Tensor upright = read(with_jpeg_segment(with_jpeg_segment(plain, 0xE1, exif), 0xE1, xmp));
      CHECK(max_difference(upright, make_upright(decoded, orientation)) == 0);
      CHECK(upright.size(0) == (orientation < 5 ? 24 : 40));
    }
  const std::string damaged = std::string(kExifPrefix) + exif_data(6, true).substr(0, 20);
  CHECK(max_difference(read(with_jpeg_segment(plain, 0xE1, damaged)), decoded) == 0);
}
#endif
