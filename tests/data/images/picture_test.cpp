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

TEST_CASE("transparent PNG pictures are blended with black in their encoded values") {
  const TempDir dir;
  const auto read = [&](const Tensor& picture, int bits) {
    write_file(dir / "p.png", png_bytes(picture, bits, false));
    return read_picture(dir / "p.png").to_vector();
  };
  for (const int bits : {8, 16}) {
    CAPTURE(bits);
    CHECK(read(Tensor::from_vector<uint8_t>({200, 0, 200, 255, 200, 128, 100, 51}, {2, 2, 2}), bits) ==
          std::vector<double>{0, 200, 100, 20});
    CHECK(read(Tensor::from_vector<uint8_t>({255, 100, 0, 128, 7, 8, 9, 255}, {1, 2, 4}), bits) ==
          std::vector<double>{128, 50, 0, 7, 8, 9});
  }
  // A colour that is transparent by the chunk tRNS.
  const Bytes grey = png_bytes(Tensor::from_vector<uint8_t>({9, 100}, {1, 2, 1}), 8, false);
  write_file(dir / "p.png", with_png_chunk(grey, "tRNS", std::string("\0\x64", 2)));
  CHECK(read_picture(dir / "p.png").to_vector() == std::vector<double>{9, 0});
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
  CHECK(contains(fault(write("a.jpg", std::string("\0\0\0\x18"
                                                  "ftypheic",
                                                  12))),
                 "is a HEIC file"));
  CHECK(contains(fault(write("a.jpg", std::string("\0\0\0\x18"
                                                  "ftypavif",
                                                  12))),
                 "is an AVIF file"));
  for (const char* name : {"x/y.JPeG", "a.jfif", "a.jpe", "a.HEIC", "a.avif", "a.tif"})
    CHECK_MESSAGE(is_picture_name(name), name);
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

TEST_CASE("JPEG files with complete pixels are read in spite of faults in other places") {
  const TempDir dir;
  const Tensor picture = smooth_picture(40, 56, 3);
  const auto read = [&](const Bytes& bytes) {
    write_file(dir / "p.jpg", bytes);
    return read_picture(dir / "p.jpg");
  };
  const auto insert = [](Bytes bytes, int64_t at, const std::string& text) {
    bytes.insert(bytes.begin() + at, text.begin(), text.end());
    return bytes;
  };
  for (const bool progressive : {false, true}) {
    CAPTURE(progressive);
    const Bytes whole = jpeg_bytes(picture, progressive);
    const auto end = static_cast<int64_t>(whole.size()) - 2;
    const Tensor expected = read(whole);
    Bytes revision = whole;
    revision[11] = 2;  // the major revision in the segment JFIF
    CHECK(max_difference(read(revision), expected) == 0);
    CHECK(max_difference(read(insert(whole, find_jpeg_marker(whole, 0xDB), "abc")), expected) == 0);
    CHECK(max_difference(read(insert(whole, end, std::string(9, '\0'))), expected) == 0);
    CHECK(max_difference(read(insert(whole, end + 2, "after the end")), expected) == 0);
    const std::string adobe("Adobe\0\x64\0\0\0\0\x07", 12);  // the unknown colour transform 7
    CHECK(max_difference(read(with_jpeg_segment(whole, 0xEE, adobe)), expected) == 0);
  }
  Bytes whole = jpeg_bytes(picture);
  const Tensor expected = read(whole);
  CHECK(max_difference(read(Bytes(whole.begin(), whole.end() - 2)), expected) == 0);
  // The last bytes of the scan's header are the spectral selection, 0 to 63, and the approximation.
  const auto scan = static_cast<size_t>(find_jpeg_marker(whole, 0xDA));
  whole[scan + 2 + whole[scan + 3] - 2] = 5;
  CHECK(max_difference(read(whole), expected) == 0);
}

TEST_CASE("JPEG files without a part of their pixels are faults") {
  const TempDir dir;
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg_bytes(smooth_picture(40, 56, 3), progressive);
    for (const int64_t missing : {60, 200}) {  // bytes before the end marker
      Bytes bytes(whole.begin(), whole.end() - 2 - missing);
      write_file(dir / "open.jpg", bytes);
      CHECK(contains(fault(dir / "open.jpg"), "expected a JPEG image: "));
      bytes.insert(bytes.end(), whole.end() - 2, whole.end());
      write_file(dir / "closed.jpg", bytes);
      CHECK(contains(fault(dir / "closed.jpg"), "expected a JPEG image: "));
    }
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
