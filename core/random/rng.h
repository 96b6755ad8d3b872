// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
// 3"). A number depends only on the seed, the stream name, the step and the index of the element. It does not
// depend on the device, the number of threads or the block size.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/base/host_device.h"

namespace tapeformer {

using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

// Returns a * b. On a device, the PTX instruction avoids additions of zero that nvcc generates for a product
// of 64-bit integers.
TAPEFORMER_HOST_DEVICE inline uint64_t multiply_words(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t{a} * b;
#endif
}

// Returns the four random words for a 64-bit key and a 128-bit counter.
TAPEFORMER_HOST_DEVICE inline PhiloxBlock philox4x32(uint64_t key, uint64_t counter_low,
                                                     uint64_t counter_high) {
  auto c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  auto c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = multiply_words(kPhiloxMultiplier0, c0);
    const uint64_t product1 = multiply_words(kPhiloxMultiplier1, c2);
    const uint32_t n0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(product1);
    c3 = static_cast<uint32_t>(product0);
    c0 = n0;
    c2 = n2;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  return {c0, c1, c2, c3};
}

// A sequence of random numbers, which is determined by a seed, a name and a step number.
class RandomStream {
 public:
  RandomStream() = default;
  RandomStream(uint64_t seed, std::string_view name, uint64_t step = 0);

  TAPEFORMER_HOST_DEVICE RandomStream at_step(uint64_t step) const {
    RandomStream other = *this;
    other.step_ = step;
    return other;
  }
  TAPEFORMER_HOST_DEVICE uint64_t key() const { return key_; }
  TAPEFORMER_HOST_DEVICE uint64_t step() const { return step_; }

  TAPEFORMER_HOST_DEVICE PhiloxBlock block(uint64_t index) const { return philox4x32(key_, index, step_); }
  // Returns 16 random bits of element i, for dropout.
  TAPEFORMER_HOST_DEVICE uint16_t bits16(uint64_t i) const {
    const PhiloxBlock bits = block(i / 8);
    return static_cast<uint16_t>(bits[(i % 8) / 2] >> (16 * (i % 2)));
  }
  // Returns a uniform number in the open interval (0, 1), with 53 random bits.
  TAPEFORMER_HOST_DEVICE double uniform(uint64_t i) const { return to_open_interval(block(i)); }
  // Returns a standard normal number, computed by the Box–Muller transform.
  TAPEFORMER_HOST_DEVICE double normal(uint64_t i) const {
    const PhiloxBlock bits = block(i);
    const double angle = 0x1p-32 * 6.283185307179586 * bits[2];
    return std::sqrt(-2 * std::log(to_open_interval(bits))) * std::cos(angle);
  }
  // Returns a uniform integer in [0, n), n > 0. Each probability differs from 1 / n by less than 2^-64.
  TAPEFORMER_HOST_DEVICE uint64_t uniform_below(uint64_t i, uint64_t n) const {
    const PhiloxBlock bits = block(i);
    return ((uint64_t{bits[0]} << 32) | bits[1]) % n;
  }

  // Converts the first 53 bits of a block to a number in the open interval (0, 1).
  TAPEFORMER_HOST_DEVICE static double to_open_interval(const PhiloxBlock& bits) {
    const uint64_t word = (uint64_t{bits[0]} << 32) | bits[1];
    const double number = (static_cast<double>(word >> 11) + 0.5) * 0x1p-53;
    return number < 1 ? number : 0x1.fffffffffffffp-1;  // if all 53 bits are 1, the sum rounds to 2^53
  }

 private:
  uint64_t key_ = 0;
  uint64_t step_ = 0;
};

}  // namespace tapeformer
