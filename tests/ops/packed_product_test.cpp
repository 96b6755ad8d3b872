#include "ops/cpu/packed_product.h"

#include <doctest/doctest.h>

#include "tests/support/random.h"

using namespace tapeformer;

namespace {

// Returns the largest error of multiply_packed_panels() for operands a (rows, depth) and b (depth, columns).
// If `from_transpose` is true, packs the transpose of b. Returns infinity if the product changes memory after
// its last column.
template <class T>
double packed_error(int64_t rows, int64_t columns, int64_t depth, bool from_transpose) {
  constexpr DType kType = std::is_same_v<T, float> ? DType::float32 : DType::float64;
  const Tensor a = test::normal({rows, depth + 3}, 1, kType), b = test::normal({depth, columns}, 2, kType);
  Tensor transposed = Tensor::empty({columns, depth}, kType);
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) transposed.data<T>()[j * depth + k] = b.data<T>()[k * columns + j];

  std::vector<T> panels(static_cast<size_t>(cpu::round_up_to_tile_columns<T>(columns) * depth), T(NAN));
  if (from_transpose)
    cpu::pack_rows(transposed.data<T>(), depth, columns, depth, panels.data());
  else
    cpu::pack_columns(b.data<T>(), columns, depth, columns, T{1}, depth, panels.data());

  // The product must not change the extra column of c.
  std::vector<T> c(static_cast<size_t>(rows * (columns + 1)), T{7});
  cpu::multiply_packed_panels(rows, columns, depth, a.data<T>(), depth + 3, panels.data(), c.data(),
                              columns + 1);
  double worst = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += static_cast<double>(a.data<T>()[i * (depth + 3) + k]) * b.data<T>()[k * columns + j];
      const double error = std::abs(sum - static_cast<double>(c[static_cast<size_t>(i * (columns + 1) + j)]));
      worst = test::max_error(worst, error);
    }
    if (c[static_cast<size_t>(i * (columns + 1) + columns)] != T{7}) return INFINITY;
  }
  return worst;
}

// Returns the largest error of compute_tile_product() for BFloat16 operands. `left` is the memory layout of
// the left operand. If `from_transpose` is true, packs the transpose of the right operand.
double pair_error(cpu::Left left, bool from_transpose, int64_t columns, int64_t depth) {
  constexpr int64_t kRows = cpu::kTileRows, kWidth = cpu::kTileColumns<float>;
  const auto rounded = [](int64_t n, int salt) { return test::normal({n}, salt).to(DType::bfloat16); };
  const Tensor a = rounded(kRows * depth, 1), b = rounded(depth * columns, 2);
  // pack_rows() also sets the rows after `depth` to zero.
  const int64_t packed = cpu::compute_packed_depth<BFloat16>(depth) + (from_transpose ? 6 : 0),
                stride = packed + 2;
  const bool in_rows = left == cpu::Left::rows;
  std::vector<BFloat16> rows(static_cast<size_t>(kRows * stride * (packed + 2))),
      panel(static_cast<size_t>(cpu::round_up_to_tile_columns<float>(columns) * packed), BFloat16(NAN)),
      transposed(static_cast<size_t>(depth * columns));
  const auto b_at = [&](int64_t k, int64_t j) { return b.data<BFloat16>()[k * columns + j]; };
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      rows[static_cast<size_t>(in_rows ? i * stride + k : (k - k % 2) * stride + 2 * i + k % 2)] =
          a.data<BFloat16>()[i * depth + k];
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = 0; j < columns; ++j) transposed[static_cast<size_t>(j * depth + k)] = b_at(k, j);
  if (from_transpose)
    cpu::pack_rows(transposed.data(), depth, columns, depth, packed, panel.data());
  else
    cpu::pack_columns(b.data<BFloat16>(), columns, depth, columns, packed, panel.data());
  double worst = 0;
  for (int64_t column = 0; column < columns; column += kWidth) {
    std::vector<float> c(static_cast<size_t>(kRows * kWidth), 1.0f);
    if (in_rows)
      cpu::compute_tile_product<cpu::Left::rows, true>(rows.data(), stride, panel.data() + column * packed,
                                                       packed, c.data(), kWidth);
    else
      cpu::compute_tile_product<cpu::Left::columns, true>(rows.data(), stride, panel.data() + column * packed,
                                                          packed, c.data(), kWidth);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kWidth; ++j) {
        double sum = 1;
        for (int64_t k = 0; k < depth && column + j < columns; ++k)
          sum += static_cast<double>(static_cast<float>(a.data<BFloat16>()[i * depth + k])) *
                 static_cast<double>(static_cast<float>(b_at(k, column + j)));
        const double error = std::abs(sum - static_cast<double>(c[static_cast<size_t>(i * kWidth + j)]));
        worst = test::max_error(worst, error);
      }
  }
  return worst;
}

}  // namespace

TEST_CASE("tile products of BFloat16 equal plain sums for all sizes, and padding has no effect") {
  for (const int64_t columns : {1, 7, 16, 31, 32, 33, 64, 70})
    for (const int64_t depth : {1, 2, 7, 16, 31, 32, 33, 64, 67})
      for (const bool from_transpose : {false, true})
        for (const cpu::Left left : {cpu::Left::rows, cpu::Left::columns}) {
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(from_transpose);
          CHECK(pair_error(left, from_transpose, columns, depth) < 2e-5);
        }
}

TEST_CASE("products in cache blocks equal plain sums for all sizes") {
  const int64_t block = cpu::kBlockRows, part = cpu::kPanelBlockDepth;
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
