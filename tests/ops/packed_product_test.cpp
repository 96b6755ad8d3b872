#include "ops/cpu/packed_product.h"

#include <doctest/doctest.h>

#include "tests/support/random.h"

using namespace tapeformer;

namespace {

// Returns the maximum difference between the blocked product a b and plain sums. b is packed directly or from
// its transpose.
template <class T>
double packed_error(int64_t rows, int64_t columns, int64_t depth, bool from_transpose) {
  constexpr DType kType = std::is_same_v<T, float> ? DType::float32 : DType::float64;
  const Tensor a = test::normal({rows, depth + 3}, 1, kType), b = test::normal({depth, columns}, 2, kType);
  Tensor transposed = Tensor::empty({columns, depth}, kType);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) transposed.data<T>()[j * depth + k] = b.data<T>()[k * columns + j];

  std::vector<T> panels(static_cast<size_t>(cpu::tile_columns<T>(columns) * depth), T(NAN));
  if (from_transpose)
    cpu::pack_rows(transposed.data<T>(), depth, columns, depth, panels.data());
  else
    cpu::pack_columns(b.data<T>(), columns, depth, columns, T{1}, depth, panels.data());

  // Columns beyond the result must not change.
  std::vector<T> c(static_cast<size_t>(rows * (columns + 1)), T{7});
  cpu::packed_product(rows, columns, depth, a.data<T>(), depth + 3, panels.data(), c.data(), columns + 1);
  double worst = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += static_cast<double>(a.data<T>()[i * (depth + 3) + k]) * b.data<T>()[k * columns + j];
      const double error = std::abs(sum - static_cast<double>(c[static_cast<size_t>(i * (columns + 1) + j)]));
      if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    }
    if (c[static_cast<size_t>(i * (columns + 1) + columns)] != T{7}) return INFINITY;
  }
  return worst;
}

}  // namespace

TEST_CASE("products in cache blocks equal the plain sum at all sizes") {
  const int64_t block = cpu::kBlockRows, part = cpu::kPartDepth;
  for (const int64_t rows : {int64_t{1}, int64_t{5}, int64_t{6}, int64_t{7}, block, block + 1})
    for (const int64_t columns : {1, 8, 15, 16, 33})
      for (const int64_t depth : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{30}, part, part + 13})
        for (const bool from_transpose : {false, true}) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(from_transpose);
          CHECK(packed_error<double>(rows, columns, depth, from_transpose) < 1e-12);
          CHECK(packed_error<float>(rows, columns, depth, from_transpose) < 1e-4);
        }
}
