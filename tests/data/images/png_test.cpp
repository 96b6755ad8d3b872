#include "data/images/png.h"

#include <doctest/doctest.h>

#include "data/images/images.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Tensor pattern(const Shape& shape) {
  std::vector<uint8_t> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 37 % 256);
  return Tensor::from_vector(values, shape);
}

}  // namespace

TEST_CASE("grey and RGB images are unchanged after writing and reading") {
  const TempDir dir;
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{5, 7, 1}, Shape{1, 1, 3}, Shape{31, 33, 3}}) {
    CAPTURE(shape.to_string());
    const Tensor image = pattern(shape);
    write_png(dir / "image.png", image);
    CHECK(read_file(dir / "image.png").substr(0, 8) == "\x89PNG\r\n\x1a\n");
    const Tensor back = read_png(dir / "image.png");
    CHECK(back.shape() == shape);
    CHECK(back.to_vector() == image.to_vector());
  }
}

TEST_CASE("a grid arranges, scales and separates its images") {
  // Three images of 1 x 2 pixels in two columns, with scale 2 and gap 1, form two rows of height 2.
  const Tensor images = Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor grid = make_image_grid(images, 1, 2, 1, {.columns = 2, .scale = 2, .gap = 1, .background = 9});
  CHECK(grid.shape() == Shape{7, 11, 1});
  const std::vector<double> edge(11, 9), top = {9, 1, 1, 2, 2, 9, 3, 3, 4, 4, 9},
                                         bottom = {9, 5, 5, 6, 6, 9, 9, 9, 9, 9, 9};
  std::vector<double> expected;
  for (const auto* row : {&edge, &top, &top, &edge, &bottom, &bottom, &edge})
    expected.insert(expected.end(), row->begin(), row->end());
  CHECK(grid.to_vector() == expected);

  const Tensor colour =
      make_image_grid(Tensor::from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {1, 6}), 1, 2, 3, {.scale = 1});
  CHECK(colour.shape() == Shape{5, 6, 3});
  CHECK(colour.data<uint8_t>()[(2 * 6 + 3) * 3 + 1] == 5);
  CHECK(make_image_grid(pattern({10, 196}), 14, 14, 1).shape() == Shape{3 * 58 + 2, 4 * 58 + 2, 1});
}

TEST_CASE("tensors that are not images are errors with the shape") {
  const TempDir dir;
  CHECK_THROWS_WITH_AS(write_png(dir / "x.png", pattern({4, 4, 2})),
                       "write_png: needs contiguous uint8 (height, width, 1 or 3), not (4, 4, 2) uint8",
                       ShapeError);
  CHECK_THROWS_AS(write_png(dir / "x.png", Tensor::zeros({4, 4, 1})), ShapeError);
  CHECK_THROWS_AS(write_png(dir / "x.png", pattern({0, 4, 1})), ShapeError);
  CHECK_THROWS_WITH_AS(make_image_grid(pattern({4, 5}), 2, 2, 1),
                       "make_image_grid: needs contiguous uint8 (count, 4), not (4, 5) uint8", ShapeError);
  CHECK_THROWS_WITH_AS(make_image_grid(pattern({0, 4}), 2, 2, 1), "make_image_grid: no images", ShapeError);
  CHECK_THROWS_AS(make_image_grid(pattern({1, 4}), 2, 2, 1, {.scale = 0}), ShapeError);
  CHECK_THROWS_AS(make_image_grid(pattern({1, 4}), 2, 2, 1, {.scale = int64_t{1} << 40}), ShapeError);
  CHECK(!std::filesystem::exists(dir / "x.png"));
}

TEST_CASE("errors of writing and reading a PNG contain the path") {
  const TempDir dir;
  const auto path = dir / "none" / "grid.png";
  CHECK(contains(message_of<std::runtime_error>([&] {
                   write_png(path, pattern({2, 2, 1}));
                 }),
                 "cannot write " + path.string()));
  write_png(dir / "image.png", pattern({9, 9, 3}));
  const std::string whole = read_file(dir / "image.png");
  for (size_t cut = 0; cut < whole.size() - 12; ++cut) {  // the last 12 bytes are the end chunk
    CAPTURE(cut);
    write_file(dir / "cut.png", whole.substr(0, cut));
    CHECK(contains(message_of<DataError>([&] { read_png(dir / "cut.png"); }),
                   (dir / "cut.png").string() + ": expected a PNG image"));
  }
}
