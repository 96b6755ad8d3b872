#include "core/cpu/bfloat16.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/cpu/bfloat16_pairs.h"
#include "core/tensor.h"

using namespace tapeformer;

namespace {

// Returns floats of all magnitudes, and floats at and next to the midpoints of neighbouring bfloat16 numbers.
std::vector<float> floats() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 4093)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (uint32_t high = 0; high < 1u << 16; ++high)
    for (const uint32_t low : {0x7FFFu, 0x8000u, 0x8001u})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  return values;
}

}  // namespace

TEST_CASE("rows of float round to BFloat16 in the same way as single values: ties to even, quiet NaN") {
  const std::vector<float> values = floats();
  std::vector<BFloat16> rounded(values.size());
  cpu::narrow(values.data(), static_cast<int64_t>(values.size()), rounded.data());
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += rounded[i].bits != BFloat16(values[i]).bits;
  CHECK(wrong == 0);
}

TEST_CASE("rows of BFloat16 widen exactly") {
  std::vector<BFloat16> values(1 << 16);
  for (size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(values.size());
  cpu::widen(values.data(), static_cast<int64_t>(values.size()), wide.data());
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) wrong += std::bit_cast<uint32_t>(wide[i]) != i << 16;
  CHECK(wrong == 0);
}

TEST_CASE("conversions write only the elements of the row") {
  for (int64_t count = 0; count <= 2 * cpu::kLanes<float> + 1; ++count) {
    const std::vector<float> values(static_cast<size_t>(count), 1.5f);
    std::vector<BFloat16> narrow(static_cast<size_t>(count) + 1, BFloat16(7.0f));
    cpu::narrow(values.data(), count, narrow.data());
    std::vector<float> wide(static_cast<size_t>(count) + 1, 7.0f);
    cpu::widen(narrow.data(), count, wide.data());
    for (size_t i = 0; i <= static_cast<size_t>(count); ++i) {
      CHECK(static_cast<float>(narrow[i]) == (i < values.size() ? 1.5f : 7.0f));
      CHECK(wide[i] == (i < values.size() ? 1.5f : 7.0f));
    }
  }
}

TEST_CASE("pairs are rounded, and multiplied in float, with and without instructions for BFloat16") {
  constexpr size_t kCount = cpu::kLanes<float>;
  float even[kCount], odd[kCount], sums[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    even[i] = 0.37f * static_cast<float>(i) - 1;
    odd[i] = 1 / (3 + static_cast<float>(i));
    sums[i] = static_cast<float>(i);
  }
  const cpu::Pairs a = cpu::narrow_pairs(cpu::load(even), cpu::load(odd)),
                   widened = cpu::detail::round_to_pairs(cpu::load(even), cpu::load(odd));
  BFloat16 rows[2 * kCount], pairs[2 * kCount];
  cpu::store_dot_product_operand(rows, cpu::load(even));
  cpu::store_dot_product_operand(rows + kCount, cpu::load(odd));
  cpu::store_pairs(pairs, a);
  const cpu::Pairs b = cpu::broadcast_pair(pairs + 2),
                   interleaved = cpu::interleave_rows(rows, rows + kCount);
  const auto dots = cpu::add_dot_products(cpu::load(sums), a, b),
             widened_dots = cpu::detail::add_widened_products(cpu::load(sums), a, b);
  const auto rounded = [](float x) { return static_cast<double>(static_cast<float>(BFloat16(x))); };
  for (size_t i = 0; i < kCount; ++i) {
    CHECK(a[i] == widened[i]);
    CHECK(a[i] == interleaved[i]);
    CHECK(pairs[2 * i].bits == BFloat16(even[i]).bits);
    CHECK(pairs[2 * i + 1].bits == BFloat16(odd[i]).bits);
    const double expected = sums[i] + rounded(even[i]) * rounded(even[1]) + rounded(odd[i]) * rounded(odd[1]);
    CHECK(std::abs(dots[i] - expected) < 4e-6);
    CHECK(std::abs(widened_dots[i] - expected) < 4e-6);
  }
}

TEST_CASE("casts of tensors and sums in bfloat16 agree for contiguous and strided rows") {
  const std::vector<float> values = floats();
  const auto count = static_cast<int64_t>(values.size()) / 2;
  const Tensor finite = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i)
    finite.data<float>()[i] = values[static_cast<size_t>(i)] < 1e30f ? values[static_cast<size_t>(i)] : 1.0f;
  const Tensor contiguous = finite.to(DType::bfloat16);
  const Tensor spread = Tensor::zeros({count, 2}, DType::bfloat16).view({count}, {2});
  spread.copy_from(finite);
  CHECK(spread.to_vector() == contiguous.to_vector());
  contiguous.add_scaled(contiguous, 0.3);
  spread.add_scaled(spread, 0.3);
  CHECK(spread.to_vector() == contiguous.to_vector());
  CHECK(contiguous.to(DType::float32).to(DType::bfloat16).to_vector() == contiguous.to_vector());
}
