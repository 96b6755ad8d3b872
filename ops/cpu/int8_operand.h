// The right operand of products with few rows in 8-bit integers, for decoding, which is limited by the
// bandwidth of the memory. Blocks of 32 elements along the depth have one scale, as in the type Q8_0 of GGUF
// files.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/scratch.h"
#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

inline constexpr int64_t kInt8Block = 32;

// Returns the scale of a block of `count` elements: its largest absolute value becomes 127.
inline float compute_int8_scale(const float* block, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(block[i]));
  return largest / 127;
}
inline int8_t round_to_int8(float value, float scale) {
  return scale > 0 ? static_cast<int8_t>(std::lround(value / scale)) : int8_t{0};
}

// A template, so that only the statement for the length of V is compiled.
template <class V = Vector<float>>
[[gnu::always_inline]] inline V load_int8(const int8_t* source) {
  typedef int32_t Words [[gnu::vector_size(sizeof(V)), maybe_unused]];
  // GCC 12 would convert bytes to words in several steps.
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64)
    return __builtin_convertvector(
        (Words)_mm512_maskz_cvtepi8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(source))),
        V);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32)
    return __builtin_convertvector(
        (Words)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(source))), V);
#endif
  typedef int8_t Bytes [[gnu::vector_size(sizeof(V) / 4)]];
  Bytes bytes;
  std::memcpy(&bytes, source, sizeof(bytes));
  return __builtin_convertvector(bytes, V);
}

// Computes a tile of the product, (kRows, kPanels * kTileColumns). The elements and the scales of a panel
// follow one another by columns.
template <int kRows, int kPanels>
void multiply_int8_panels(const float* a, int64_t depth, const int8_t* panels, int64_t panel_stride,
                          const float* scales, int64_t scale_stride, float* c, int64_t c_stride) {
  constexpr int kVectors = 2 * kPanels;
  constexpr int64_t kColumns = kTileColumns<float>;
  Vector<float> total[kRows][kVectors] = {};
  for (int64_t first = 0; first < depth; first += kInt8Block) {
    Vector<float> sums[kRows][kVectors] = {};
    const int64_t last = std::min(first + kInt8Block, depth);
    for (int64_t k = first; k < last; ++k)
      for (int j = 0; j < kVectors; ++j) {
        Vector<float> right = load_int8(panels + j / 2 * panel_stride + k * kColumns + j % 2 * kLanes<float>);
        keep_in_register(right);
        for (int r = 0; r < kRows; ++r) sums[r][j] += a[r * depth + k] * right;
      }
    for (int j = 0; j < kVectors; ++j) {
      const Vector<float> scale =
          load(scales + j / 2 * scale_stride + first / kInt8Block * kColumns + j % 2 * kLanes<float>);
      for (int r = 0; r < kRows; ++r) total[r][j] += scale * sums[r][j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) store(c + r * c_stride + j * kLanes<float>, total[r][j]);
}

class Int8Operand {
 public:
  // Packs the transpose of b (columns, depth). out_stride is the row stride of results.
  Int8Operand(int64_t depth, int64_t columns, const float* b, int64_t out_stride)
      : depth_(depth),
        columns_(columns),
        out_stride_(out_stride),
        panel_count_((columns + kColumns - 1) / kColumns),
        panels_(panel_count_ * depth * kColumns),
        scales_(panel_count_ * scale_stride()) {
    std::fill_n(panels_.data(), panel_count_ * depth * kColumns, int8_t{0});
    std::fill_n(scales_.data(), panel_count_ * scale_stride(), 0.0F);
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t first = 0; first < depth; first += kInt8Block) {
        const float* const block = b + i * depth + first;
        const int64_t count = std::min(kInt8Block, depth - first), panel = i / kColumns,
                      column = i % kColumns;
        const float scale = compute_int8_scale(block, count);
        scales_.data()[panel * scale_stride() + first / kInt8Block * kColumns + column] = scale;
        for (int64_t k = 0; k < count; ++k)
          panels_.data()[(panel * depth + first + k) * kColumns + column] = round_to_int8(block[k], scale);
      }
  }

  // Computes out (rows, columns) = a (rows, depth) b for a contiguous `a`.
  void multiply(int64_t rows, const float* a, float* out) const {
    int64_t row = 0;
    for (; row + 4 <= rows; row += 4) multiply_rows<4, 1>(a + row * depth_, out + row * out_stride_);
    for (; row < rows; ++row)
      multiply_rows<1, kVectorBytes == 64 ? 4 : 2>(a + row * depth_, out + row * out_stride_);
  }

 private:
  static constexpr int64_t kColumns = kTileColumns<float>;

  int64_t scale_stride() const { return (depth_ + kInt8Block - 1) / kInt8Block * kColumns; }

  template <int kRows, int kPanels>
  void multiply_rows(const float* a, float* out) const {
    const auto multiply = [&]<int kCount>(std::integral_constant<int, kCount>, int64_t panel, float* c,
                                          int64_t c_stride) {
      multiply_int8_panels<kRows, kCount>(a, depth_, panels_.data() + panel * depth_ * kColumns,
                                          depth_ * kColumns, scales_.data() + panel * scale_stride(),
                                          scale_stride(), c, c_stride);
    };
    const int64_t whole = columns_ / kColumns;
    int64_t panel = 0;
    for (; panel + kPanels <= whole; panel += kPanels)
      multiply(std::integral_constant<int, kPanels>(), panel, out + panel * kColumns, out_stride_);
    for (; panel < whole; ++panel)
      multiply(std::integral_constant<int, 1>(), panel, out + panel * kColumns, out_stride_);
    if (panel == panel_count_) return;
    float values[kRows * kColumns];
    multiply(std::integral_constant<int, 1>(), panel, values, kColumns);
    for (int r = 0; r < kRows; ++r)
      std::copy_n(values + r * kColumns, columns_ - panel * kColumns,
                  out + r * out_stride_ + panel * kColumns);
  }

  int64_t depth_, columns_, out_stride_, panel_count_;
  Scratch<int8_t> panels_;
  Scratch<float> scales_;
};

}  // namespace tapeformer::cpu
