// Products of small matrices by a warp on tensor cores: 16 x 16 times 16 x 8, with bfloat16 operands and
// float32 sums, and loads of their operands from shared memory. The emulation exchanges the fragments of the
// lanes as a device does, so tests on the CPU detect errors in their layout.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "core/cuda/kernel.h"
#include "core/dtype.h"

namespace tapeformer::cuda {

// Returns two numbers rounded to the nearest bfloat16, ties to even, with the first in the lower half.
__device__ inline uint32_t bfloat16_pair(float first, float second) {
#ifdef TAPEFORMER_CUDA_EMULATED
  return uint32_t{BFloat16(second).bits} << 16 | BFloat16(first).bits;
#else
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

__device__ inline float first_of_pair(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
__device__ inline float second_of_pair(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000);
}

// The part of the left operand in one lane. With row = lane / 4 and column = 2 (lane % 4), these are the
// pairs of adjacent elements of a row that begin at (row, column), (row + 8, column), (row, column + 8) and
// (row + 8, column + 8).
struct LeftFragment {
  uint32_t pairs[4];
};
// Elements of the right operand in one lane: two pairs of adjacent elements of column lane / 4. The pairs
// begin in rows 2 (lane % 4) and 2 (lane % 4) + 8.
struct RightFragment {
  uint32_t pairs[2];
};

#ifdef TAPEFORMER_CUDA_EMULATED

namespace emulation {

struct Fragments {
  LeftFragment left;
  RightFragment right;
};

// Returns the 16 elements of a row or column from the values of four lanes. Elements k < 8 come from the pair
// at byte `at` of each lane's Fragments, and all other elements from the pair `step` bytes later.
inline std::array<float, 16> shared_elements(const LaneValues& lanes, int first_lane, size_t at,
                                             size_t step) {
  std::array<float, 16> elements;
  for (size_t k = 0; k < 16; k += 2) {
    uint32_t pair;
    std::memcpy(&pair, lanes.bytes[static_cast<size_t>(first_lane) + k % 8 / 2] + at + k / 8 * step,
                sizeof(pair));
    elements[k] = first_of_pair(pair);
    elements[k + 1] = second_of_pair(pair);
  }
  return elements;
}

inline void check_matrix_row(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    throw std::logic_error("kernel: a row of load_matrices has an address that is no multiple of 16");
}

}  // namespace emulation

#endif

// Computes the matrix product sums += left * right. A lane holds the elements (row, column), (row, column +
// 1), (row + 8, column) and (row + 8, column + 1) of the sums, with row and column as in LeftFragment. All
// lanes of the warp call the function. The PTX ISA describes the instruction (mma.sync.aligned.m16n8k16). The
// asm statement is volatile, so that the compiler does not move it into a branch that some lanes skip.
__device__ inline void add_matrix_product(float& sum0, float& sum1, float& sum2, float& sum3,
                                          const LeftFragment& left, const RightFragment& right) {
#ifdef TAPEFORMER_CUDA_EMULATED
  using emulation::Fragments;
  const Fragments own{left, right};
  const emulation::LaneValues& lanes = emulation::exchange(kAllLanes, &own, sizeof(own));
  constexpr size_t kPair = sizeof(uint32_t), kLeft = offsetof(Fragments, left),
                   kRight = offsetof(Fragments, right);
  const int lane = emulation::lane_of_thread(), row = lane / 4 * 4, column = lane % 4 * 8;
  const std::array<float, 16> rows[] = {emulation::shared_elements(lanes, row, kLeft, 2 * kPair),
                                        emulation::shared_elements(lanes, row, kLeft + kPair, 2 * kPair)};
  const std::array<float, 16> columns[] = {emulation::shared_elements(lanes, column, kRight, kPair),
                                           emulation::shared_elements(lanes, column + 4, kRight, kPair)};
  for (size_t k = 0; k < 16; ++k) {
    sum0 += rows[0][k] * columns[0][k];
    sum1 += rows[0][k] * columns[1][k];
    sum2 += rows[1][k] * columns[0][k];
    sum3 += rows[1][k] * columns[1][k];
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum0), "+f"(sum1), "+f"(sum2), "+f"(sum3)
      : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]), "r"(right.pairs[0]),
        "r"(right.pairs[1]));
#endif
}

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l passes the address of row l % 8 of
// matrix l / 8, a multiple of 16 bytes. pairs[m] of lane l becomes the elements (l / 4, 2 (l % 4)) and
// (l / 4, 2 (l % 4) + 1) of matrix m, or of the transposed matrix if kTransposed is true. All lanes of the
// warp call the function. The PTX ISA describes the instruction (ldmatrix.sync.aligned.m8n8.x4).
template <bool kTransposed>
__device__ inline void load_matrices(const uint32_t* row, uint32_t (&pairs)[4]) {
#ifdef TAPEFORMER_CUDA_EMULATED
  constexpr size_t kRowBytes = 16;
  emulation::check_matrix_row(row);
  const emulation::LaneValues& lanes = emulation::exchange(kAllLanes, row, kRowBytes);
  const auto lane = static_cast<size_t>(emulation::lane_of_thread()), line = lane / 4, first = lane % 4 * 2;
  for (size_t m = 0; m < 4; ++m) {
    uint16_t elements[2];
    for (size_t e = 0; e < 2; ++e)
      std::memcpy(&elements[e],
                  lanes.bytes[8 * m + (kTransposed ? first + e : line)] +
                      (kTransposed ? line : first + e) * sizeof(uint16_t),
                  sizeof(uint16_t));
    pairs[m] = uint32_t{elements[1]} << 16 | elements[0];
  }
#else
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3])
                 : "r"(address)
                 : "memory");
#endif
}

}  // namespace tapeformer::cuda
