#include "core/cpu/dropout_bits.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tapeformer::cpu {
namespace {

constexpr int kBlocks = 8;    // number of Philox blocks computed in parallel, one per lane
constexpr int kPerBlock = 8;  // number of elements that use the bits of one block
constexpr int kGroup = kBlocks * kPerBlock;

typedef uint32_t Words [[gnu::vector_size(32)]];
typedef int32_t Signed [[gnu::vector_size(32)]];
typedef uint64_t LongWords [[gnu::vector_size(32)]];

// The upper and lower 32 bits of the 64-bit products x * factor.
struct Product {
  Words high, low;
};
[[gnu::always_inline]] inline Product multiply(Words x, uint32_t factor) {
#ifdef __AVX2__
  const Signed factors = Signed{} + static_cast<int32_t>(factor);
  const auto odd_lanes = std::bit_cast<Signed>(std::bit_cast<LongWords>(x) >> 32);
  const auto e = std::bit_cast<Words>(__builtin_ia32_pmuludq256(std::bit_cast<Signed>(x), factors));
  const auto o = std::bit_cast<Words>(__builtin_ia32_pmuludq256(odd_lanes, factors));
  return {__builtin_shufflevector(e, o, 1, 9, 3, 11, 5, 13, 7, 15),
          __builtin_shufflevector(e, o, 0, 8, 2, 10, 4, 12, 6, 14)};
#else
  Product product;
  for (int lane = 0; lane < kBlocks; ++lane) {
    const uint64_t wide = uint64_t{x[lane]} * factor;
    product.high[lane] = static_cast<uint32_t>(wide >> 32);
    product.low[lane] = static_cast<uint32_t>(wide);
  }
  return product;
#endif
}

// Computes the random bits of kGroup elements, starting at element kPerBlock * first_block. Each vector lane
// computes one block of philox4x32.
void compute_group_bits(const RandomStream& stream, uint64_t first_block, uint16_t (&bits)[kGroup]) {
  Words c0, c1, c2 = Words{} + static_cast<uint32_t>(stream.step()),
                c3 = Words{} + static_cast<uint32_t>(stream.step() >> 32);
  for (int lane = 0; lane < kBlocks; ++lane) {
    c0[lane] = static_cast<uint32_t>(first_block + static_cast<uint64_t>(lane));
    c1[lane] = static_cast<uint32_t>((first_block + static_cast<uint64_t>(lane)) >> 32);
  }
  auto k0 = static_cast<uint32_t>(stream.key()), k1 = static_cast<uint32_t>(stream.key() >> 32);
  for (int round = 0; round < 10; ++round, k0 += kPhiloxWeyl0, k1 += kPhiloxWeyl1) {
    const Product p0 = multiply(c0, kPhiloxMultiplier0), p1 = multiply(c2, kPhiloxMultiplier1);
    c0 = p1.high ^ c1 ^ k0;
    c2 = p0.high ^ c3 ^ k1;
    c1 = p1.low;
    c3 = p0.low;
  }
  // Transposes the words, so that the words of each block are adjacent.
  const auto low01 = std::bit_cast<LongWords>(__builtin_shufflevector(c0, c1, 0, 8, 1, 9, 2, 10, 3, 11));
  const auto low23 = std::bit_cast<LongWords>(__builtin_shufflevector(c2, c3, 0, 8, 1, 9, 2, 10, 3, 11));
  const auto high01 = std::bit_cast<LongWords>(__builtin_shufflevector(c0, c1, 4, 12, 5, 13, 6, 14, 7, 15));
  const auto high23 = std::bit_cast<LongWords>(__builtin_shufflevector(c2, c3, 4, 12, 5, 13, 6, 14, 7, 15));
  const LongWords in_order[4] = {__builtin_shufflevector(low01, low23, 0, 4, 1, 5),
                                 __builtin_shufflevector(low01, low23, 2, 6, 3, 7),
                                 __builtin_shufflevector(high01, high23, 0, 4, 1, 5),
                                 __builtin_shufflevector(high01, high23, 2, 6, 3, 7)};
  static_assert(sizeof(in_order) == sizeof(bits) && std::endian::native == std::endian::little);
  std::memcpy(bits, in_order, sizeof(bits));
}

}  // namespace

template <class T>
void compute_dropout_multipliers(const DropoutMask& mask, int64_t first, int64_t count, T* multipliers) {
  const auto threshold = static_cast<int32_t>(mask.threshold());
  const T scale = static_cast<T>(mask.scale());
  first += mask.offset;
  T part[kGroup];
  for (int64_t done = 0; done < count;) {
    const int64_t block = (first + done) / kPerBlock, skip = (first + done) % kPerBlock;
    const int64_t taken = std::min<int64_t>(kGroup - skip, count - done);
    uint16_t bits[kGroup];
    compute_group_bits(mask.stream, static_cast<uint64_t>(block), bits);
    T* const target = taken == kGroup ? multipliers + done : part;
#pragma omp simd
    for (int i = 0; i < kGroup; ++i) target[i] = int32_t{bits[i]} >= threshold ? scale : T{0};
    if (target == part) std::copy_n(part + skip, taken, multipliers + done);
    done += taken;
  }
}

template void compute_dropout_multipliers(const DropoutMask&, int64_t, int64_t, float*);
template void compute_dropout_multipliers(const DropoutMask&, int64_t, int64_t, double*);

}  // namespace tapeformer::cpu
