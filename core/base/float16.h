// Conversion of float16 (IEEE 754 binary16), which files of weights contain. No tensor has this type.
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

}  // namespace tapeformer
