#include "ops/cpu/packed_operand.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/cpu/recurrent_operand.h"
#include "ops/view.h"
#include "tests/support/random.h"

using namespace tapeformer;

namespace {

// Returns the values of a float32 tensor, rounded to the type O.
template <class O>
std::vector<O> rounded(const Tensor& x) {
  std::vector<O> values;
  for (const double value : x.to_vector()) values.push_back(convert_element<O>(value));
  return values;
}

// Returns the largest error of a product with a PackedOperand or a RecurrentOperand. The error of an element
// of the product is divided by the sum of the absolute values of the terms of the element. The operands of
// the product are rounded to the type O.
template <class O, template <class> class Operand = cpu::PackedOperand>
double operand_error(int64_t rows, int64_t columns, int64_t depth, bool transposed) {
  using T = Compute<O>;
  constexpr bool kWritesPanels = std::is_same_v<Operand<O>, cpu::RecurrentOperand<O>>;
  const Tensor a = test::normal({rows, depth}, 1), b = test::normal({depth, columns}, 2);
  const std::vector<O> left = rounded<O>(a), right = rounded<O>(b);
  const std::vector<T> values = rounded<T>(transposed ? permute(b, {1, 0}) : b);
  const int64_t stride = kWritesPanels ? cpu::round_up_to_tile_columns<T>(columns) : columns + 3;
  std::vector<T> out(static_cast<size_t>(rows * stride), T{7});
  if constexpr (kWritesPanels)
    Operand<O>(depth, columns, values.data(), transposed).multiply(rows, left.data(), out.data());
  else
    Operand<O>(depth, columns, values.data(), transposed, stride).multiply(rows, left.data(), out.data());
  double worst = 0;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<double> sums(static_cast<size_t>(kWritesPanels ? columns : stride), 0);
    std::fill(sums.begin() + columns, sums.end(), 7);
    std::vector<double> magnitudes(sums.size(), 1e-30);
    for (int64_t k = 0; k < depth; ++k) {
      const double factor = convert_element<double>(left[static_cast<size_t>(i * depth + k)]);
      const O* const row = right.data() + k * columns;
      for (int64_t j = 0; j < columns; ++j) {
        const double term = factor * convert_element<double>(row[j]);
        sums[static_cast<size_t>(j)] += term;
        magnitudes[static_cast<size_t>(j)] += std::abs(term);
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      const double found = static_cast<double>(out[static_cast<size_t>(i * stride) + j]);
      worst = test::max_error(worst, std::abs(sums[j] - found) / magnitudes[j]);
    }
  }
  return worst;
}

// Returns the largest relative error of out = aᵀ b or, if `add` is true, of out += aᵀ b, where `out` contains
// ones before the call.
template <class O>
double transposed_error(int64_t rows, int64_t m, int64_t n, bool add) {
  using T = Compute<O>;
  const std::vector<O> left = rounded<O>(test::normal({rows, m}, 1)),
                       right = rounded<O>(test::normal({rows, n}, 2));
  std::vector<T> out(static_cast<size_t>(m * n), T{1});
  cpu::multiply_transposed_left(rows, m, n, left.data(), right.data(), add, out.data());
  double worst = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = add ? 1 : 0, magnitude = add ? 1 : 1e-30;
      for (int64_t k = 0; k < rows; ++k) {
        const double term = convert_element<double>(left[static_cast<size_t>(k * m + i)]) *
                            convert_element<double>(right[static_cast<size_t>(k * n + j)]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double error =
          std::abs(sum - static_cast<double>(out[static_cast<size_t>(i * n + j)])) / magnitude;
      worst = test::max_error(worst, error);
    }
  return worst;
}

}  // namespace

TEST_CASE("packed operands: products equal the sums of products of rounded operands") {
  for (const int64_t rows : {1, 15, 16, 64, 83})
    for (const int64_t columns : {1, 16, 65, 129})
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

TEST_CASE("recurrent operands: products equal the sums of products of rounded operands") {
  for (const int64_t rows : {1, 7, 16, 17})
    for (const int64_t columns : {1, 33, 1280})
      for (const int64_t depth : {1, 2, 320, 642, 1281})
        for (const bool transposed : {false, true}) {
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(depth);
          CAPTURE(transposed);
          CHECK(operand_error<double, cpu::RecurrentOperand>(rows, columns, depth, transposed) < 1e-15);
          CHECK(operand_error<float, cpu::RecurrentOperand>(rows, columns, depth, transposed) < 1e-6);
          CHECK(operand_error<BFloat16, cpu::RecurrentOperand>(rows, columns, depth, transposed) < 1e-6);
        }
}

TEST_CASE("packed operands: products with operands that do not fit in the L2 cache") {
  for (const int64_t rows : {83, 290}) {
    CAPTURE(rows);
    CHECK(operand_error<float>(rows, 520, 1058, true) < 1e-6);
    CHECK(operand_error<BFloat16>(rows, 520, 1058, true) < 1e-6);
    for (const bool add : {false, true}) {
      CHECK(transposed_error<float>(2 * rows, 33, 1060, add) < 1e-6);
      CHECK(transposed_error<BFloat16>(2 * rows, 33, 1060, add) < 1e-6);
    }
  }
}

// Products with depth 1 have the largest relative errors, because the errors of the terms of a sum partly
// cancel.
TEST_CASE("packed operands: the product of two floats has an error of less than 2^-22") {
  CHECK(operand_error<float>(1000, 1000, 1, false) < std::exp2(-22));
  CHECK(transposed_error<float>(1, 1000, 1000, false) < std::exp2(-22));
}

namespace {

// Returns the products a[i] * b[j], computed as the matrix product of a column and a row.
std::vector<float> compute_outer_product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size() * b.size());
  cpu::PackedOperand<float>(1, std::ssize(b), b.data(), false).multiply(std::ssize(a), a.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("packed operands: products of floats of very different magnitudes") {
  std::vector<float> a, b;
  for (const double value : test::normal({160}, 1).to_vector())
    a.push_back(std::ldexp(std::copysign(1.0f, static_cast<float>(value)) + static_cast<float>(value) / 8,
                           static_cast<int>(a.size()) - 99));
  for (const double value : test::normal({160}, 2).to_vector())
    b.push_back(std::ldexp(std::copysign(1.0f, static_cast<float>(value)) + static_cast<float>(value) / 8,
                           static_cast<int>(b.size()) - 99));
  const std::vector<float> out = compute_outer_product(a, b);
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      const double expected = double{a[i]} * double{b[j]}, error = out[i * b.size() + j] - expected;
      if (std::abs(expected) < std::exp2(-100))
        CHECK(std::abs(error) < std::exp2(-122));
      else
        CHECK(std::abs(error) < std::exp2(-22) * std::abs(expected));
    }
}

TEST_CASE("packed operands: floats that are NaN, infinite or near the limits of float32") {
  const float largest_split = std::nextafter(std::ldexp(511.0f, 119), 0.0f),
              largest = std::numeric_limits<float>::max();
  std::vector<float> a = {largest_split, -largest_split, largest};
  for (const uint32_t bits : {0x7F800000U, 0xFF800000U, 0x7FC00000U, 0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU})
    a.push_back(std::bit_cast<float>(bits));
  const std::vector<float> out = compute_outer_product(a, {std::ldexp(1.0f, -20)});
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    const double expected = double{a[i]} * std::exp2(-20);
    if (std::isfinite(a[i]) && a[i] != largest)
      CHECK(std::abs(out[i] - expected) < std::exp2(-22) * std::abs(expected));
    else if (a[i] == largest)
      CHECK((std::isnan(out[i]) || static_cast<double>(out[i]) == expected));
    else
      CHECK(!std::isfinite(out[i]));
  }
}

TEST_CASE("packed operands: with AMX, the result of a row does not depend on the number of rows") {
  if (!cpu::uses_amx()) return;
  constexpr int64_t kRows = 83, kDepth = 300, kColumns = 70;
  const std::vector<float> a = rounded<float>(test::normal({kRows, kDepth}, 1)),
                           b = rounded<float>(test::normal({kDepth, kColumns}, 2));
  const cpu::PackedOperand<float> packed(kDepth, kColumns, b.data(), false);
  std::vector<float> all(kRows * kColumns), part(all.size());
  packed.multiply(kRows, a.data(), all.data());
  for (const int64_t count : {1, 7, 16, 17, 31})
    for (int64_t row = 0; row < kRows; row += count) {
      const int64_t rows = std::min(count, kRows - row);
      packed.multiply(rows, a.data() + row * kDepth, part.data() + row * kColumns);
      CAPTURE(count);
      CHECK(std::equal(part.begin() + row * kColumns, part.begin() + (row + rows) * kColumns,
                       all.begin() + row * kColumns));
    }
}

// The bound is the standard deviation of a sum of `depth` independent errors with the standard deviation
// 2^-24, relative to the root of the sum of the squared terms.
TEST_CASE("packed operands: rounding errors of sums of float products") {
  constexpr int64_t kRows = 96, kColumns = 128;
  for (const int64_t depth : {1, 32, 256, 2048}) {
    const std::vector<float> a = rounded<float>(test::normal({kRows, depth}, 1)),
                             b = rounded<float>(test::normal({depth, kColumns}, 2));
    std::vector<float> out(kRows * kColumns);
    cpu::PackedOperand<float>(depth, kColumns, b.data(), false).multiply(kRows, a.data(), out.data());
    double total = 0;
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < depth; ++k) {
          const double term = double{a[static_cast<size_t>(i * depth + k)]} *
                              double{b[static_cast<size_t>(k * kColumns + j)]};
          sum += term;
          squares += term * term;
        }
        const double error = sum - double{out[static_cast<size_t>(i * kColumns + j)]};
        total += error * error / squares;
      }
    const double relative_error = std::sqrt(total / (kRows * kColumns));
    MESSAGE("depth ", depth, ": root mean square error ", relative_error);
    CHECK(relative_error < std::exp2(-24) * std::sqrt(static_cast<double>(depth)));
  }
}

TEST_CASE("packed operands: transposed products are added to the result") {
  for (const int64_t rows : {0, 1, 64, 65, 300, 600})
    for (const int64_t m : {1, 33})
      for (const int64_t n : {1, 48}) {
        CAPTURE(rows);
        CAPTURE(m);
        CAPTURE(n);
        for (const bool add : {false, true}) {
          CAPTURE(add);
          CHECK(transposed_error<double>(rows, m, n, add) < 1e-15);
          CHECK(transposed_error<float>(rows, m, n, add) < 1e-6);
          CHECK(transposed_error<BFloat16>(rows, m, n, add) < 1e-6);
        }
      }
}
