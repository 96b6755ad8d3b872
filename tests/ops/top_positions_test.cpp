// Tests of select_top_positions() against its definition.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "ops/top_positions.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the positions of the `count` largest elements of `row`, sorted by position.
std::vector<int64_t> largest_of(const std::vector<double>& row, int64_t count) {
  std::vector<int64_t> order(row.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

TEST_CASE(
    "select_top_positions returns the positions of the largest elements in increasing order, on all "
    "devices") {
  for (const Device device : list_devices())
    for (const DType dtype : {DType::float32, DType::float64})
      for (const int64_t length : {1, 2, 31, 300, 1025}) {
        // Rounds the elements, so that many are equal.
        const Tensor x = normal({3, length}, 1);
        for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = std::round(4 * x.data<double>()[i]) / 4;
        for (const int64_t count : {int64_t{1}, (length + 1) / 2, length}) {
          CAPTURE(length);
          CAPTURE(count);
          const auto found = select_top_positions(x.to(dtype).to(device), count).to(kCpu);
          REQUIRE(found.shape() == Shape{3, count});
          for (int64_t r = 0; r < 3; ++r) {
            const double* const row = x.data<double>() + r * length;
            const int64_t* const positions = found.data<int64_t>() + r * count;
            CHECK(std::vector<int64_t>(positions, positions + count) ==
                  largest_of({row, row + length}, count));
          }
        }
      }
}

TEST_CASE("select_top_positions selects NaN first, -inf last, and the first of equal zeros") {
  for (const Device device : list_devices()) {
    const Tensor x = Tensor::from_vector<double>({-INFINITY, 0.0, -0.0, NAN, INFINITY, -1}, {6}).to(device);
    const auto top = [&](int64_t count) { return select_top_positions(x, count).to_vector(); };
    CHECK(top(1) == std::vector<double>{3});
    CHECK(top(2) == std::vector<double>{3, 4});
    CHECK(top(3) == std::vector<double>{1, 3, 4});
    CHECK(top(5) == std::vector<double>{1, 2, 3, 4, 5});
  }
}

TEST_CASE("select_top_positions throws ShapeError for a count that is out of range") {
  const Tensor x = normal({2, 7, 3, 4});
  CHECK_THROWS_WITH_AS(select_top_positions(x, 5),
                       "select_top_positions: count must be from 1 to 4 for x (2, 7, 3, 4), not 5",
                       ShapeError);
  CHECK_THROWS_AS(select_top_positions(x, 0), ShapeError);
  CHECK_THROWS_AS(select_top_positions(Tensor::zeros({}), 1), ShapeError);
}
