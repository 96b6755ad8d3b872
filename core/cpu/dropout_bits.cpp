#include "core/cpu/dropout_bits.h"

#include <algorithm>

namespace tapeformer::cpu {
namespace {

constexpr int kLanes = 8;     // Philox blocks computed side by side
constexpr int kPerBlock = 8;  // elements a block serves
constexpr int kWords = 4;     // 32-bit words of a block

// Philox blocks first … first + kLanes - 1, word by word: the loop of philox4x32 turned inside out for vector
// units.
void philox_lanes(const RandomStream& stream, uint64_t first, uint32_t (&words)[kWords][kLanes]) {
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    c0[lane] = static_cast<uint32_t>(first + static_cast<uint64_t>(lane));
    c1[lane] = static_cast<uint32_t>((first + static_cast<uint64_t>(lane)) >> 32);
    c2[lane] = static_cast<uint32_t>(stream.step());
    c3[lane] = static_cast<uint32_t>(stream.step() >> 32);
  }
  auto k0 = static_cast<uint32_t>(stream.key()), k1 = static_cast<uint32_t>(stream.key() >> 32);
  for (int round = 0; round < 10; ++round, k0 += kPhiloxWeyl0, k1 += kPhiloxWeyl1) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * c0[lane];
      const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * c2[lane];
      c0[lane] = static_cast<uint32_t>(product1 >> 32) ^ c1[lane] ^ k0;
      c2[lane] = static_cast<uint32_t>(product0 >> 32) ^ c3[lane] ^ k1;
      c1[lane] = static_cast<uint32_t>(product1);
      c3[lane] = static_cast<uint32_t>(product0);
    }
  }
  std::copy_n(c0, kLanes, words[0]);
  std::copy_n(c1, kLanes, words[1]);
  std::copy_n(c2, kLanes, words[2]);
  std::copy_n(c3, kLanes, words[3]);
}

}  // namespace

template <class T>
void dropout_multipliers(const DropoutMask& mask, int64_t first, int64_t count, T* multipliers) {
  const uint32_t threshold = mask.threshold();
  const T scale = static_cast<T>(mask.scale());
  auto multiplier = [&](uint32_t bits) { return bits >= threshold ? scale : T{0}; };
  auto element = [&](int64_t i) { return multiplier(mask.stream.bits16(static_cast<uint64_t>(first + i))); };
  int64_t i = 0;
  for (; i < count && (first + i) % kPerBlock != 0; ++i) multipliers[i] = element(i);
  uint32_t words[kWords][kLanes];
  for (; i + kLanes * kPerBlock <= count; i += kLanes * kPerBlock) {
    philox_lanes(mask.stream, static_cast<uint64_t>(first + i) / kPerBlock, words);
    for (int lane = 0; lane < kLanes; ++lane) {
      T* const out = multipliers + i + lane * kPerBlock;
      for (int word = 0; word < kWords; ++word) {
        out[2 * word] = multiplier(words[word][lane] & 0xFFFF);
        out[2 * word + 1] = multiplier(words[word][lane] >> 16);
      }
    }
  }
  for (; i < count; ++i) multipliers[i] = element(i);
}

template void dropout_multipliers(const DropoutMask&, int64_t, int64_t, float*);
template void dropout_multipliers(const DropoutMask&, int64_t, int64_t, double*);

}  // namespace tapeformer::cpu
