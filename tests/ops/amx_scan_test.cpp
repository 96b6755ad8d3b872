#include "ops/cpu/amx_scan.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "ops/cpu/packed_operand.h"

using namespace tapeformer;
using namespace tapeformer::cpu;

namespace {

struct ScanCase {
  int64_t rows, columns, count;
};

// Returns `count` pseudorandom numbers from {-1, 0, 1}.
std::vector<float> make_small_integers(int64_t count, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    values.push_back(static_cast<float>(seed >> 16 & 1) - static_cast<float>(seed >> 17 & 1));
  }
  return values;
}

// Checks that two scans with AMX have the same results as cpu::scan_outer_products(). The operands, the
// elements of P and the states are integers with absolute values of at most 256. bfloat16 represents these
// integers exactly, and all sums are exact in float32. Operands of tokens from `count` on are NaN.
template <ScanMode kMode, int kStep>
void check_scan(const ScanCase& c) {
  const auto make_panels = [&](int64_t elements, uint32_t seed) {
    std::vector<float> panels = make_small_integers(compute_panel_size<float>(elements), seed);
    for (int64_t e = 0; e < round_up_to_vector<float>(elements); ++e)
      for (int64_t t = 0; t < kChunkTokens; ++t) {
        float& value = panels[static_cast<size_t>(compute_panel_index<float>(t, e))];
        if (e >= elements) value = 0;
        if (t >= c.count) value = std::numeric_limits<float>::quiet_NaN();
      }
    return panels;
  };
  const std::vector<float> a = make_panels(c.rows, 1), b = make_panels(c.columns, 2),
                           left = make_panels(c.rows, 3);
  const int64_t padded = round_up_to_vector<float>(c.columns);
  std::vector<float> expected_state(static_cast<size_t>(c.rows * padded));
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.columns; ++j)
      expected_state[static_cast<size_t>(i * padded + j)] = static_cast<float>((i + 2 * j) % 5 - 2);
  std::vector<float> state = expected_state;
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<float> expected(static_cast<size_t>(compute_panel_size<float>(c.columns)),
                                std::numeric_limits<float>::quiet_NaN()),
        found = expected;
    cpu::scan_outer_products<kMode, kStep>(expected_state.data(), c.rows, c.columns,
                                           {a.data(), b.data(), left.data(), expected.data()}, c.count);
    {
      const amx::TileRegisters registers;
      amx::scan_outer_products<kMode, kStep>(state.data(), c.rows, c.columns,
                                             {a.data(), b.data(), left.data(), found.data()}, c.count);
    }
    CHECK(state == expected_state);
    for (int64_t t = 0; t < (kMode == ScanMode::update ? 0 : c.count); ++t)
      for (int64_t e = 0; e < c.columns; ++e) {
        const auto at = static_cast<size_t>(compute_panel_index<float>(t, e));
        REQUIRE(found[at] == expected[at]);
      }
  }
}

}  // namespace

TEST_CASE("scan with AMX: the results of small integers are exact") {
  if constexpr (amx::kHasScan) {
    if (!uses_amx()) {
      MESSAGE("skipped: this process does not use AMX");
      return;
    }
    for (const ScanCase& c : {ScanCase{32, 32, 96}, ScanCase{64, 64, 96}, ScanCase{32, 64, 33},
                              ScanCase{8, 24, 1}, ScanCase{40, 72, 31}, ScanCase{72, 16, 95},
                              ScanCase{33, 31, 65}, ScanCase{1, 1, 2}, ScanCase{31, 33, 64}}) {
      CAPTURE(c.rows);
      CAPTURE(c.columns);
      CAPTURE(c.count);
      check_scan<ScanMode::update_then_read, 1>(c);
      check_scan<ScanMode::update_then_read, -1>(c);
      check_scan<ScanMode::update, 1>(c);
      check_scan<ScanMode::update, -1>(c);
      check_scan<ScanMode::read, 1>(c);
      check_scan<ScanMode::read, -1>(c);
    }
  }
}
