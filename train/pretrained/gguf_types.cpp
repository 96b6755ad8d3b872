#include "train/pretrained/gguf_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/base/float16.h"

namespace tapeformer {
namespace {

template <class T>
T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float load_float16(const uint8_t* bytes) {
  return widen_float16(load<uint16_t>(bytes));
}

// Types of one value per block.
template <class T>
void widen_numbers(const uint8_t* blocks, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(load<T>(blocks + i * int64_t{sizeof(T)}));
}
void widen_halves(const uint8_t* blocks, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = load_float16(blocks + 2 * i);
}
void widen_bfloat16(const uint8_t* blocks, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(blocks + 2 * i)) << 16);
}

constexpr int64_t kSmallBlock = 32, kLargeBlock = 256;

// Q8_0: d, 32 int8.
constexpr int64_t kQ8Bytes = 2 + kSmallBlock;
void widen_q8_0(const uint8_t* blocks, int64_t count, float* values) {
  for (; count > 0; --count, blocks += kQ8Bytes) {
    const float d = load_float16(blocks);
    for (int64_t i = 0; i < kSmallBlock; ++i)
      *values++ = d * static_cast<float>(load<int8_t>(blocks + 2 + i));
  }
}

// Q4_0, Q4_1, Q5_0 and Q5_1: d, m if has_minimum, 32 fifth bits if bits = 5, and 16 bytes. Byte i has the low
// bits of the values i and i + 16. Without a minimum, values are centred: c = 2^(bits - 1).
template <int bits, bool has_minimum>
constexpr int64_t kNibbleBytes = 2 + (has_minimum ? 2 : 0) + (bits == 5 ? 4 : 0) + kSmallBlock / 2;
template <int bits, bool has_minimum>
void widen_nibbles(const uint8_t* blocks, int64_t count, float* values) {
  constexpr int64_t kHalf = kSmallBlock / 2;
  for (; count > 0; --count, blocks += kNibbleBytes<bits, has_minimum>, values += kSmallBlock) {
    const uint8_t* at = blocks;
    const float d = load_float16(at);
    at += 2;
    float minimum = 0;
    if constexpr (has_minimum) {
      minimum = load_float16(at);
      at += 2;
    }
    uint32_t high = 0;
    if constexpr (bits == 5) {
      high = load<uint32_t>(at);
      at += 4;
    }
    constexpr int kCenter = has_minimum ? 0 : 1 << (bits - 1);
    const auto convert = [&](int64_t i, int low) {
      const int q = low | static_cast<int>(high >> i & 1) << 4;
      values[i] = d * static_cast<float>(q - kCenter) + minimum;
    };
    for (int64_t i = 0; i < kHalf; ++i) {
      convert(i, at[i] & 15);
      convert(i + kHalf, at[i] >> 4);
    }
  }
}

// The scale and the minimum of a group of Q4_K and Q5_K as multiples of d and dmin. 12 bytes have eight 6-bit
// scales and eight 6-bit minima. The bytes 0 to 3 and 4 to 7 have the first four scales and minima, and in
// their upper two bits those of the last four; the bytes 8 to 11 have the lower four bits of the last four.
std::array<int, 2> unpack_scales(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4,
          packed[group + 4] >> 4 | (packed[group] >> 6) << 4};
}

// Q4_K and Q5_K: d, dmin, 12 bytes of scales, 32 bytes of fifth bits if bits = 5, 128 bytes. 32 bytes have
// the low bits of the values of two groups of 32; bit g of byte i of the fifth bits belongs to value i of
// group g.
template <int bits>
constexpr int64_t kGroupBytes = 2 + 2 + 12 + (bits == 5 ? kLargeBlock / 8 : 0) + kLargeBlock / 2;
template <int bits>
void widen_groups(const uint8_t* blocks, int64_t count, float* values) {
  constexpr int64_t kGroup = 32;
  for (; count > 0; --count, blocks += kGroupBytes<bits>) {
    const float d = load_float16(blocks), dmin = load_float16(blocks + 2);
    const uint8_t *const scales = blocks + 4, *const high = scales + 12;
    const uint8_t* const low = high + (bits == 5 ? kLargeBlock / 8 : 0);
    for (int group = 0; group < kLargeBlock / kGroup; ++group) {
      const auto [scale, minimum] = unpack_scales(scales, group);
      const float step = d * static_cast<float>(scale), offset = dmin * static_cast<float>(minimum);
      const uint8_t* const own = low + group / 2 * kGroup;
      for (int64_t i = 0; i < kGroup; ++i) {
        int q = group % 2 == 0 ? own[i] & 15 : own[i] >> 4;
        if constexpr (bits == 5) q |= (high[i] >> group & 1) << 4;
        *values++ = step * static_cast<float>(q) - offset;
      }
    }
  }
}

// Q6_K: 128 bytes of low bits, 64 bytes of high bits, 16 int8 scales of groups of 16, d. In each half of the
// block, value 32 k + i has its low bits in byte 32 (k mod 2) + i, in the upper four bits if k >= 2, and its
// high bits in the bits 2 k and 2 k + 1 of byte i.
constexpr int64_t kQ6Bytes = kLargeBlock / 2 + kLargeBlock / 4 + kLargeBlock / 16 + 2;
void widen_q6_k(const uint8_t* blocks, int64_t count, float* values) {
  constexpr int64_t kGroup = 16, kRun = 32, kHalf = kLargeBlock / 2;
  for (; count > 0; --count, blocks += kQ6Bytes) {
    const uint8_t *const low = blocks, *const high = low + kHalf, *const scales = high + kHalf / 2;
    const float d = load_float16(scales + kLargeBlock / kGroup);
    for (int64_t at = 0; at < kLargeBlock; ++at) {
      const int64_t half = at / kHalf, run = at % kHalf / kRun, i = at % kRun;
      const uint8_t byte = low[half * kHalf / 2 + run % 2 * kRun + i];
      const int q = (run >= 2 ? byte >> 4 : byte & 15) | (high[half * kRun + i] >> (2 * run) & 3) << 4;
      const float step = d * static_cast<float>(load<int8_t>(scales + at / kGroup));
      *values++ = step * static_cast<float>(q - 32);
    }
  }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, widen_numbers<float>},
    {1, "F16", 1, 2, widen_halves},
    {2, "Q4_0", kSmallBlock, kNibbleBytes<4, false>, widen_nibbles<4, false>},
    {3, "Q4_1", kSmallBlock, kNibbleBytes<4, true>, widen_nibbles<4, true>},
    {6, "Q5_0", kSmallBlock, kNibbleBytes<5, false>, widen_nibbles<5, false>},
    {7, "Q5_1", kSmallBlock, kNibbleBytes<5, true>, widen_nibbles<5, true>},
    {8, "Q8_0", kSmallBlock, kQ8Bytes, widen_q8_0},
    {12, "Q4_K", kLargeBlock, kGroupBytes<4>, widen_groups<4>},
    {13, "Q5_K", kLargeBlock, kGroupBytes<5>, widen_groups<5>},
    {14, "Q6_K", kLargeBlock, kQ6Bytes, widen_q6_k},
    {28, "F64", 1, 8, widen_numbers<double>},
    {30, "BF16", 1, 2, widen_bfloat16},
};

}  // namespace

const GgufType* find_gguf_type(uint32_t number) {
  const GgufType* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                            [&](const GgufType& known) { return known.number == number; });
  return type == std::end(kTypes) ? nullptr : type;
}

}  // namespace tapeformer
