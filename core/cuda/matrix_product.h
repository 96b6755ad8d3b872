// Matrix products of a warp on tensor cores, and loads of their operands from shared memory. A product
// multiplies a 16 x 16 matrix by a 16 x 8 matrix of bfloat16 elements, with float32 sums. The emulation
// exchanges the fragments of the lanes as a device does, so tests on the CPU detect errors in the layout of
// the fragments.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include "core/base/dtype.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// Rounds two numbers to bfloat16 (to nearest, ties to even) and returns both in one word. The first number is
// in the lower 16 bits.
__device__ inline uint32_t pack_bfloat16_pair(float first, float second) {
#ifdef TAPEFORMER_CUDA_EMULATED
  return uint32_t{BFloat16(second).bits} << 16 | BFloat16(first).bits;
#else
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#endif
}

// unpack_first() returns the lower half of a result of pack_bfloat16_pair() as float, and unpack_second() the
// upper half.
__device__ inline float unpack_first(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
__device__ inline float unpack_second(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xFFFF0000);
}

// The elements of the left operand, a (16, 16) matrix, that one lane holds. Each pair consists of two
// adjacent elements of a row. With row = lane / 4 and column = 2 * (lane % 4), the first elements of the
// pairs have the following positions:
//   pairs[0]: (row, column)      pairs[1]: (row + 8, column)
//   pairs[2]: (row, column + 8)  pairs[3]: (row + 8, column + 8)
struct LeftFragment {
  uint32_t pairs[4];
};
// The elements of the right operand, a (16, 8) matrix, that one lane holds. Each pair consists of two
// adjacent elements of a column. With row = 2 * (lane % 4) and column = lane / 4, the first elements of the
// pairs have the following positions:
//   pairs[0]: (row, column)      pairs[1]: (row + 8, column)
struct RightFragment {
  uint32_t pairs[2];
};

#ifdef TAPEFORMER_CUDA_EMULATED

namespace emulation {

// The values that a lane passes to the other lanes of its warp.
struct Fragments {
  LeftFragment left;
  RightFragment right;
};

// Returns the 16 elements of a row of the left operand, or of a column of the right operand, from the
// fragments of four consecutive lanes. For i = 0 to 3, lane first_lane + i holds two pairs of these elements.
// The pair at byte `offset` consists of the elements 2 i and 2 i + 1. The pair at byte offset + step consists
// of the elements 2 i + 8 and 2 i + 9.
inline std::array<float, 16> collect_elements(const LaneValues& lanes, int first_lane, size_t offset,
                                              size_t step) {
  std::array<float, 16> elements;
  for (size_t k = 0; k < 16; k += 2) {
    uint32_t pair;
    std::memcpy(&pair, lanes.bytes[static_cast<size_t>(first_lane) + k % 8 / 2] + offset + k / 8 * step,
                sizeof(pair));
    elements[k] = unpack_first(pair);
    elements[k + 1] = unpack_second(pair);
  }
  return elements;
}

inline void check_row_alignment(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    throw std::logic_error("kernel: a row of load_matrices has an address that is no multiple of 16");
}

}  // namespace emulation

#endif

// Computes sums += left * right, where `sums` is a (16, 8) matrix and each lane holds four of its elements.
// With row = lane / 4 and column = 2 * (lane % 4), these elements have the following positions:
//   sum0: (row, column)      sum1: (row, column + 1)
//   sum2: (row + 8, column)  sum3: (row + 8, column + 1)
// All lanes of the warp must call the function. The instruction is mma.sync.aligned.m16n8k16 in the PTX ISA.
// The asm statement is volatile, so that the compiler does not move the instruction into a branch that only
// some lanes take.
__device__ inline void add_matrix_product(float& sum0, float& sum1, float& sum2, float& sum3,
                                          const LeftFragment& left, const RightFragment& right) {
#ifdef TAPEFORMER_CUDA_EMULATED
  using emulation::Fragments;
  const Fragments fragments{left, right};
  const emulation::LaneValues& lanes =
      emulation::exchange_lane_values(kAllLanes, &fragments, sizeof(fragments));
  constexpr size_t kPairBytes = sizeof(uint32_t), kLeft = offsetof(Fragments, left),
                   kRight = offsetof(Fragments, right);
  const int lane = emulation::current_lane(), row = lane / 4 * 4, column = lane % 4 * 8;
  const std::array<float, 16> rows[] = {
      emulation::collect_elements(lanes, row, kLeft, 2 * kPairBytes),
      emulation::collect_elements(lanes, row, kLeft + kPairBytes, 2 * kPairBytes)};
  const std::array<float, 16> columns[] = {
      emulation::collect_elements(lanes, column, kRight, kPairBytes),
      emulation::collect_elements(lanes, column + 4, kRight, kPairBytes)};
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

// Loads four (8, 8) matrices of 16-bit elements from shared memory. `row` is the address of row lane % 8 of
// matrix lane / 8, and must be a multiple of 16.
//
// pairs[m] receives two adjacent elements of matrix m, or of the transposed matrix if kTransposed is true.
// The first of these elements is in row lane / 4 and column 2 * (lane % 4).
//
// All lanes of the warp must call the function. The instruction is ldmatrix.sync.aligned.m8n8.x4 in the PTX
// ISA.
template <bool kTransposed>
__device__ inline void load_matrices(const uint32_t* row, uint32_t (&pairs)[4]) {
#ifdef TAPEFORMER_CUDA_EMULATED
  constexpr size_t kRowBytes = 16;
  emulation::check_row_alignment(row);
  const emulation::LaneValues& lanes = emulation::exchange_lane_values(kAllLanes, row, kRowBytes);
  const auto lane = static_cast<size_t>(emulation::current_lane()), line = lane / 4, first = lane % 4 * 2;
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
