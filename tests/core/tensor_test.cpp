#include "core/tensor.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace tapeformer;

TEST_CASE("copies of a handle share data, clones do not") {
  const Tensor a = Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2});
  const Tensor b = a;
  const Tensor c = a.clone();
  a.data<float>()[0] = 9;
  CHECK(b.data<float>()[0] == 9);
  CHECK(c.data<float>()[0] == 1);
}

TEST_CASE("strided copies follow the strides of both sides") {
  const Tensor a = Tensor::from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = a.view({3, 2}, {1, 3});
  CHECK_FALSE(transposed.is_contiguous());
  CHECK(transposed.clone().to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6});
  const Tensor target = Tensor::zeros({2, 3});
  target.view({3, 2}, {1, 3}).copy_from(transposed);
  CHECK(target.to_vector() == a.to_vector());
}

TEST_CASE("conversion to bfloat16 rounds to the nearest value, and ties to the even value") {
  const Tensor a = Tensor::from_vector<double>({1.0, 1.00390625, 1.01171875, 256}, {4});
  CHECK(a.to(DType::bfloat16).to_vector() == std::vector<double>{1.0, 1.0, 1.015625, 256});
  CHECK(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(Tensor::from_vector<uint8_t>({255}, {1}).to(DType::float32).item() == 255);
}

TEST_CASE("invalid shapes and wrong dtypes are errors with the shape in the text") {
  CHECK_THROWS_WITH_AS(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}),
                       "shape: (1099511627776, 1099511627776) has too many elements", ShapeError);
  CHECK_THROWS_AS(Tensor::empty({2, -1}), ShapeError);
  CHECK_THROWS_WITH(Tensor::empty({2, 3}).data<double>(),
                    "tensor of shape (2, 3) holds float32, not float64");
  CHECK_THROWS_WITH(Tensor::empty({2, 3}).view({7}), "view: shape (2, 3) cannot become (7,)");
}

TEST_CASE("add_scaled() adds a multiple of contiguous and strided tensors") {
  const Tensor a = Tensor::from_vector<double>({1, 2, 3, 4}, {2, 2}),
               b = Tensor::from_vector<double>({10, 20, 30, 40}, {2, 2});
  a.add_scaled(b, -1);
  CHECK(a.to_vector() == std::vector<double>{-9, -18, -27, -36});
  a.add_scaled(b);
  a.view({2, 2}, {1, 2}).add_scaled(b, 2);  // adds 2 * b to the transpose of a
  CHECK(a.to_vector() == std::vector<double>{21, 62, 43, 84});
}

TEST_CASE("tensors without elements are valid") {
  const Tensor empty = Tensor::zeros({0, 3});
  CHECK(empty.numel() == 0);
  CHECK(empty.clone().shape() == Shape{0, 3});
  CHECK(empty.to_vector().empty());
}

TEST_CASE("broadcast_shapes() follows NumPy") {
  CHECK(broadcast_shapes("add", {3, 1}, {2}) == Shape{3, 2});
  CHECK(broadcast_shapes("add", {}, {2, 0}) == Shape{2, 0});
  CHECK_THROWS_WITH(broadcast_shapes("add", {3}, {2}), "add: shapes (3,) and (2,) do not broadcast together");
}

TEST_CASE("Device::parse() accepts the names of devices and refuses other texts") {
  CHECK(Device::parse("cuda:3") == Device{DeviceType::cuda, 3});
  CHECK_THROWS_AS(Device::parse("cuda:x"), ConfigError);
  CHECK_THROWS_AS(Device::parse("gpu"), ConfigError);
}

TEST_CASE("an undefined tensor throws instead of reading through a null pointer") {
  const Tensor none;
  const char* const text = "an undefined tensor has no shape, dtype, device or data";
  CHECK_FALSE(none.defined());
  CHECK(none.use_count() == 0);
  CHECK_THROWS_WITH_AS(none.shape(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.numel(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.dtype(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.device(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.raw_data(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.data<float>(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.clone(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.alias(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.item(), text, ShapeError);
  CHECK_THROWS_WITH_AS(none.fill(1), text, ShapeError);
  CHECK_THROWS_WITH_AS(Tensor::zeros({1}).copy_from(none), text, ShapeError);
}
