#include "ops/cpu/packed_product.h"

#include <doctest/doctest.h>

#include "ops/cpu/packed_operand.h"
#include "ops/view.h"
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

// Returns the values of a float32 tensor, rounded to O.
template <class O>
std::vector<O> rounded(const Tensor& x) {
  std::vector<O> values;
  for (const double value : x.to_vector()) values.push_back(convert_element<O>(value));
  return values;
}

// Returns the maximum difference between a packed product and the sums of products of rounded operands,
// relative to the sum of their magnitudes.
template <class O>
double operand_error(int64_t rows, int64_t columns, int64_t depth, bool transposed) {
  using T = Compute<O>;
  const Tensor a = test::normal({rows, depth}, 1), b = test::normal({depth, columns}, 2);
  const std::vector<O> left = rounded<O>(a), right = rounded<O>(b);
  const std::vector<T> values = rounded<T>(transposed ? permute(b, {1, 0}) : b);
  const int64_t stride = columns + 3;
  std::vector<T> out(static_cast<size_t>(rows * stride), T{7});
  const cpu::PackedOperand<O> packed(depth, columns, values.data(), transposed, stride);
  packed.multiply(rows, left.data(), out.data());
  double worst = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < stride; ++j) {
      double sum = j < columns ? 0 : 7, magnitude = 1e-30;
      for (int64_t k = 0; j < columns && k < depth; ++k) {
        const double term = convert_element<double>(left[static_cast<size_t>(i * depth + k)]) *
                            convert_element<double>(right[static_cast<size_t>(k * columns + j)]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double error =
          std::abs(sum - static_cast<double>(out[static_cast<size_t>(i * stride + j)])) / magnitude;
      if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    }
  return worst;
}

// The same for out += aᵀ b, where out contains ones.
template <class O>
double transposed_error(int64_t rows, int64_t m, int64_t n) {
  using T = Compute<O>;
  const std::vector<O> left = rounded<O>(test::normal({rows, m}, 1)),
                       right = rounded<O>(test::normal({rows, n}, 2));
  std::vector<T> out(static_cast<size_t>(m * n), T{1});
  cpu::add_transposed_product(rows, m, n, left.data(), right.data(), out.data());
  double worst = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 1, magnitude = 1;
      for (int64_t k = 0; k < rows; ++k) {
        const double term = convert_element<double>(left[static_cast<size_t>(k * m + i)]) *
                            convert_element<double>(right[static_cast<size_t>(k * n + j)]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double error =
          std::abs(sum - static_cast<double>(out[static_cast<size_t>(i * n + j)])) / magnitude;
      if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
    }
  return worst;
}

}  // namespace

TEST_CASE("packed operands: products equal the sums of products of rounded operands") {
  for (const int64_t rows : {1, 15, 16, 64, 83})
    for (const int64_t columns : {1, 16, 65})
      for (const int64_t depth : {0, 1, 31, 256})
        for (const bool transposed : {false, true}) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(transposed);
          CHECK(operand_error<double>(rows, columns, depth, transposed) < 1e-15);
          CHECK(operand_error<float>(rows, columns, depth, transposed) < 1e-6);
          CHECK(operand_error<BFloat16>(rows, columns, depth, transposed) < 1e-6);
        }
}

TEST_CASE("packed operands: transposed products are added to the result") {
  for (const int64_t rows : {0, 1, 64, 65, 300, 600})
    for (const int64_t m : {1, 33})
      for (const int64_t n : {1, 48}) {
        CAPTURE(rows);
        CAPTURE(m);
        CAPTURE(n);
        CHECK(transposed_error<double>(rows, m, n) < 1e-15);
        CHECK(transposed_error<float>(rows, m, n) < 1e-6);
        CHECK(transposed_error<BFloat16>(rows, m, n) < 1e-6);
      }
}

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
