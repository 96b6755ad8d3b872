// Conversions of float16 (IEEE 754 binary16), which files of weights contain. No tensor has this type.
#pragma once

#include <bit>
#include <cstdint>

namespace tapeformer {

// Returns the value of the bits of a float16. The conversion is exact.
inline float widen_float16(uint16_t bits) {
  constexpr int kMantissaBits = 10, kMoreMantissaBits = 23 - kMantissaBits, kMoreBias = 127 - 15;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> kMantissaBits & 0x1F, mantissa = bits & 0x3FF;
  if (exponent == 0) {  // zero or a subnormal number, a multiple of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + kMoreBias;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << kMoreMantissaBits);
}

// Returns the bits of the nearest float16; of two equally near ones, that with the even mantissa. Numbers
// that are too large become infinite, and NaN stays NaN.
inline uint16_t round_to_float16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFF);
  if (!(magnitude < 65520)) return static_cast<uint16_t>(sign | (magnitude >= 65520 ? 0x7C00 : 0x7E00));
  // The sum with a power of two is rounded at the last bit of the float16.
  constexpr int kLostBits = 23 - 10;
  const uint32_t exponent = std::bit_cast<uint32_t>(magnitude) >> 23;
  constexpr uint32_t kSmallest = 127 - 14;  // exponent of the smallest normal float16
  const uint32_t scale = exponent < kSmallest ? kSmallest : exponent;
  const float step = std::bit_cast<float>((scale + kLostBits) << 23);
  const uint32_t rounded = std::bit_cast<uint32_t>(magnitude + step) - std::bit_cast<uint32_t>(step);
  return static_cast<uint16_t>(sign | (((scale - kSmallest) << 10) + rounded));
}

}  // namespace tapeformer
