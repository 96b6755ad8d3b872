// Vectors for kernels that keep a tile of a matrix in registers. A vector has 64 bytes (16 floats or 8
// doubles) if the program is compiled for AVX-512, otherwise 32 bytes. TAPEFORMER_VECTOR_BYTES overrides this
// length. If the registers are shorter than a vector, the compiler splits the vector. Loads and stores of
// BFloat16 convert from and to vectors of float.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/dtype.h"

namespace tapeformer::cpu {

#if defined(TAPEFORMER_VECTOR_BYTES)
inline constexpr int64_t kVectorBytes = TAPEFORMER_VECTOR_BYTES;
#elif defined(__AVX512F__)
inline constexpr int64_t kVectorBytes = 64;
#else
inline constexpr int64_t kVectorBytes = 32;
#endif
static_assert(kVectorBytes == 32 || kVectorBytes == 64);
// The number of elements of type T that fill one vector. BFloat16 elements are widened to float.
template <class T>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(Compute<T>));

namespace detail {
template <class T>
struct VectorOf {
  typedef T type [[gnu::vector_size(kVectorBytes)]];
};
}  // namespace detail
template <class T>
using Vector = typename detail::VectorOf<T>::type;

namespace detail {
// The bits of kLanes<float> BFloat16 elements.
typedef uint16_t HalfVector [[gnu::vector_size(kVectorBytes / 2)]];

// Converts unsigned 16-bit lanes to 32-bit lanes. The intrinsics convert all lanes with one instruction. GCC
// 12 would convert each half of the vector separately for __builtin_convertvector.
template <class Bits>
[[gnu::always_inline]] inline Vector<uint32_t> widen_lanes(Bits bits) {
#if defined(__AVX512F__)
  if constexpr (sizeof(bits) == 32)
    return (Vector<uint32_t>)_mm512_maskz_cvtepu16_epi32(0xFFFF, (__m256i)bits);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(bits) == 16) return (Vector<uint32_t>)_mm256_cvtepu16_epi32((__m128i)bits);
#endif
  return __builtin_convertvector(bits, Vector<uint32_t>);
}
[[gnu::always_inline]] inline Vector<float> widen(HalfVector bits) {
  return std::bit_cast<Vector<float>>(widen_lanes(bits) << 16);
}
// Returns the bits of BFloat16(v[i]) in each lane. Rounds to nearest even and replaces NaN by the quiet NaN,
// as the constructor of BFloat16 does.
[[gnu::always_inline]] inline Vector<uint32_t> round_to_bfloat16_bits(Vector<float> v) {
  const auto word = std::bit_cast<Vector<uint32_t>>(v);
  const Vector<uint32_t> rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
  const Vector<uint32_t> nan = Vector<uint32_t>{} + 0x7FC0;
  return v == v ? rounded : nan;
}
// Returns the bits of BFloat16(v[i]) in each lane. The instruction of AVX512-BF16 replaces subnormal numbers
// by zeros and keeps the payload of a NaN. Vectors that contain subnormal numbers or NaN are therefore
// rounded without the instruction, and all processors return the same bits, unless the program has set the
// denormals-are-zero mode.
template <class V>
[[gnu::always_inline]] inline HalfVector narrow(V v) {
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  if constexpr (sizeof(v) == 64) {
    constexpr int kQuietNan = 0x01, kSubnormal = 0x20, kSignalingNan = 0x80;
    if (_mm512_fpclass_ps_mask((__m512)v, kQuietNan | kSubnormal | kSignalingNan) == 0) [[likely]]
      return (HalfVector)_mm512_cvtneps_pbh((__m512)v);
  }
#endif
  return __builtin_convertvector(round_to_bfloat16_bits(v), HalfVector);
}
}  // namespace detail

// load() and store() access kLanes<T> adjacent elements at any alignment. If T is BFloat16, load() converts
// the elements to float, and store() rounds float elements to BFloat16.
template <class T>
[[gnu::always_inline]] inline Vector<Compute<T>> load(const T* source) {
  std::conditional_t<std::is_same_v<T, BFloat16>, detail::HalfVector, Vector<Compute<T>>> v;
  std::memcpy(&v, source, sizeof(v));
  if constexpr (std::is_same_v<T, BFloat16>)
    return detail::widen(v);
  else
    return v;
}
template <class T>
[[gnu::always_inline]] inline void store(T* target, Vector<Compute<T>> v) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    const detail::HalfVector bits = detail::narrow(v);
    std::memcpy(static_cast<void*>(target), &bits, sizeof(bits));
  } else {
    std::memcpy(target, &v, sizeof(v));
  }
}

namespace detail {
// Rotates the lanes of v: lane i of the result is lane i + kDistance of v, modulo the number of lanes.
template <int kDistance, class V, int... kLane>
[[gnu::always_inline]] inline V rotate_lanes(V v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, ((kLane + kDistance) % static_cast<int>(sizeof...(kLane)))...);
}
// Reduces the lanes of v with the binary function f. Each step combines each lane i with lane i + kDistance.
// The next step uses kDistance / 2.
template <int kDistance, class T, class F>
[[gnu::always_inline]] inline T reduce_halves(Vector<T> v, F f) {
  if constexpr (kDistance == 0)
    return v[0];
  else
    return reduce_halves<kDistance / 2, T>(
        f(v, rotate_lanes<kDistance>(v, std::make_integer_sequence<int, static_cast<int>(kLanes<T>)>())), f);
}
template <class T>
[[gnu::always_inline]] inline T sum_lanes(Vector<T> v) {
  return reduce_halves<static_cast<int>(kLanes<T> / 2), T>(
      v, [](Vector<T> a, Vector<T> b) __attribute__((always_inline)) { return a + b; });
}
template <class T>
[[gnu::always_inline]] inline T max_lanes(Vector<T> v) {
  return reduce_halves<static_cast<int>(kLanes<T> / 2), T>(
      v, [](Vector<T> a, Vector<T> b) __attribute__((always_inline)) { return a > b ? a : b; });
}
}  // namespace detail

[[gnu::always_inline]] inline float sum(Vector<float> v) {
  return detail::sum_lanes<float>(v);
}
[[gnu::always_inline]] inline double sum(Vector<double> v) {
  return detail::sum_lanes<double>(v);
}
// Returns the maximum of the lanes. The result is unspecified if a lane is NaN.
[[gnu::always_inline]] inline float reduce_max(Vector<float> v) {
  return detail::max_lanes<float>(v);
}
[[gnu::always_inline]] inline double reduce_max(Vector<double> v) {
  return detail::max_lanes<double>(v);
}

// Prefetches `count` adjacent elements into the caches. `row` can point outside allocated memory, because a
// prefetch of an invalid address has no effect.
template <class T>
[[gnu::always_inline]] inline void prefetch_row(const T* row, int64_t count) {
  constexpr int64_t kCacheLineBytes = 64, kLineElements = kCacheLineBytes / static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < count; i += kLineElements) __builtin_prefetch(row + i);
}

// load_first() and store_first() access only the first min(count, kLanes<T>) elements. load_first() sets the
// other lanes to zero.
template <class T>
[[gnu::always_inline]] inline Vector<Compute<T>> load_first(const T* source, int64_t count) {
  if (count >= kLanes<T>) return load(source);
  if constexpr (std::is_same_v<T, BFloat16>) {
    detail::HalfVector bits{};
    std::memcpy(&bits, source, static_cast<size_t>(count) * sizeof(T));
    return detail::widen(bits);
  } else {
    Vector<T> v{};
    std::memcpy(&v, source, static_cast<size_t>(count) * sizeof(T));
    return v;
  }
}
template <class T>
[[gnu::always_inline]] inline void store_first(T* target, Vector<Compute<T>> v, int64_t count) {
  if (count >= kLanes<T>) return store(target, v);
  if constexpr (std::is_same_v<T, BFloat16>) {
    const detail::HalfVector bits = detail::narrow(v);
    std::memcpy(static_cast<void*>(target), &bits, static_cast<size_t>(count) * sizeof(T));
  } else {
    std::memcpy(target, &v, static_cast<size_t>(count) * sizeof(T));
  }
}
// Returns v with all elements after the first `count` elements set to zero.
template <class T>
[[gnu::always_inline]] inline Vector<T> keep_first(Vector<T> v, int64_t count) {
  return count >= kLanes<T> ? v : load_first(reinterpret_cast<const T*>(&v), count);
}

// Calls f(i, count) for each vector of the elements [begin, end): `count` elements begin at element i. f must
// be always_inline, so that `count` is a constant for whole vectors.
template <class T, class F>
[[gnu::always_inline]] inline void visit_vectors(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  for (; i + kLanes<T> <= end; i += kLanes<T>) f(i, kLanes<T>);
  if (i < end) f(i, end - i);
}

// T and U have the same compute type.
template <class T, class U>
Compute<T> dot(const T* x, const U* y, int64_t count) {
  Vector<Compute<T>> total{};
  for (; count >= kLanes<T>; count -= kLanes<T>, x += kLanes<T>, y += kLanes<T>) total += load(x) * load(y);
  if (count > 0) total += load_first(x, count) * load_first(y, count);
  return sum(total);
}

namespace detail {
// Swaps a[i + kHalf] and b[i] for each i with (i & kHalf) == 0.
template <int kHalf, class V, int... kLane>
[[gnu::always_inline]] inline void swap_pair_elements(V& a, V& b, std::integer_sequence<int, kLane...>) {
  constexpr int kCount = sizeof...(kLane);
  const V low = __builtin_shufflevector(a, b, ((kLane & kHalf) == 0 ? kLane : kCount + kLane - kHalf)...);
  const V high = __builtin_shufflevector(a, b, ((kLane & kHalf) == 0 ? kLane + kHalf : kCount + kLane)...);
  a = low, b = high;
}
template <int kHalf, class T>
[[gnu::always_inline]] inline void swap_all_pair_elements(Vector<T>* rows) {
  constexpr int kCount = static_cast<int>(kLanes<T>);
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i)
    if ((i & kHalf) == 0)
      swap_pair_elements<kHalf>(rows[i], rows[i + kHalf], std::make_integer_sequence<int, kCount>());
}
}  // namespace detail

// Transposes a square block: element j of row i becomes element i of row j.
[[gnu::always_inline]] inline void transpose(Vector<float> (&rows)[kLanes<float>]) {
  detail::swap_all_pair_elements<1, float>(rows);
  detail::swap_all_pair_elements<2, float>(rows);
  detail::swap_all_pair_elements<4, float>(rows);
  if constexpr (kLanes<float> == 16) detail::swap_all_pair_elements<8, float>(rows);
}
[[gnu::always_inline]] inline void transpose(Vector<double> (&rows)[kLanes<double>]) {
  detail::swap_all_pair_elements<1, double>(rows);
  detail::swap_all_pair_elements<2, double>(rows);
  if constexpr (kLanes<double> == 8) detail::swap_all_pair_elements<4, double>(rows);
}

// Keeps a vector in a register. Without this function, the compiler loads the vector from memory at each
// use, and kernels that multiply and add many vectors are limited by the speed of loads.
template <class V>
[[gnu::always_inline]] inline void keep_in_register([[maybe_unused]] V& v) {
#ifdef __AVX512F__
  asm("" : "+v"(v));
#elif defined(__AVX__)
  if constexpr (sizeof(V) <= 32) asm("" : "+x"(v));
#endif
}

// Returns n rounded up to a multiple of the vector length.
template <class T>
constexpr int64_t round_up_to_vector(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

}  // namespace tapeformer::cpu
