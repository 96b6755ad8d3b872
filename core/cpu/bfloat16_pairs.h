// Vectors of pairs of BFloat16 elements. These vectors are the operands of the dot-product instructions of
// AVX512-BF16. Each 32-bit lane contains one pair, with the even element in the lower 16 bits. The
// dot-product instructions treat subnormal operands and results as zero. Without AVX512-BF16, the functions
// of this file convert the elements to float and use float instructions.
#pragma once

#include "core/cpu/vector.h"

namespace tapeformer::cpu {

#if defined(__AVX512BF16__) && defined(__AVX512VL__)
inline constexpr bool kHasDotProductInstructions = true;
#else
inline constexpr bool kHasDotProductInstructions = false;
#endif

using Pairs = Vector<uint32_t>;

// load_pairs() and store_pairs() load and store kLanes<float> pairs of adjacent elements. The address may
// have any alignment.
[[gnu::always_inline]] inline Pairs load_pairs(const BFloat16* source) {
  Pairs pairs;
  std::memcpy(&pairs, source, sizeof(pairs));
  return pairs;
}
[[gnu::always_inline]] inline void store_pairs(BFloat16* target, Pairs pairs) {
  std::memcpy(static_cast<void*>(target), &pairs, sizeof(pairs));
}

// Returns a vector in which each lane contains the pair at `source`.
[[gnu::always_inline]] inline Pairs broadcast_pair(const BFloat16* source) {
  uint32_t pair;
  std::memcpy(&pair, source, sizeof(pair));
  Pairs broadcasted = Pairs{} + pair;
  keep_in_register(broadcasted);  // otherwise GCC broadcasts each element separately
  return broadcasted;
}

namespace detail {

#if defined(__AVX512BF16__) && defined(__AVX512VL__)
template <class Sum, class Operand>
[[gnu::always_inline]] inline Sum add_dot_products_avx512(Sum sum, Operand a, Operand b) {
  if constexpr (sizeof(Sum) == 64)
    return (Sum)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
  else
    return (Sum)_mm256_dpbf16_ps((__m256)sum, (__m256bh)a, (__m256bh)b);
}
// Rounds two vectors to bfloat16. Returns the elements of `low`, followed by the elements of `high`.
template <class Sum>
[[gnu::always_inline]] inline Pairs narrow_and_concat(Sum low, Sum high) {
  if constexpr (sizeof(Sum) == 64)
    return (Pairs)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  else
    return (Pairs)_mm256_cvtne2ps_pbh((__m256)high, (__m256)low);
}
#endif

typedef uint16_t PairElements [[gnu::vector_size(kVectorBytes)]];

// Interleaves the elements of the first half of `halves` with the elements of the second half.
template <int... kElement>
[[gnu::always_inline]] inline PairElements interleave_halves(PairElements halves,
                                                             std::integer_sequence<int, kElement...>) {
  constexpr int kCount = sizeof...(kElement);
  return __builtin_shufflevector(halves, halves, (kElement / 2 + kElement % 2 * (kCount / 2))...);
}

[[gnu::always_inline]] inline Vector<float> add_widened_products(Vector<float> sum, Pairs a, Pairs b) {
  using V = Vector<float>;
  const auto get_even_elements = [](Pairs x) { return std::bit_cast<V>(x << 16); };
  const auto get_odd_elements = [](Pairs x) { return std::bit_cast<V>(x & 0xFFFF0000); };
  sum += get_odd_elements(a) * get_odd_elements(b);
  return sum + get_even_elements(a) * get_even_elements(b);
}
[[gnu::always_inline]] inline Pairs round_to_pairs(Vector<float> even_elements, Vector<float> odd_elements) {
  return round_to_bfloat16_bits(even_elements) | round_to_bfloat16_bits(odd_elements) << 16;
}

}  // namespace detail

// In each lane, adds the product of the odd elements of `a` and `b` to `sum`, and then the product of the
// even elements. Returns the result.
[[gnu::always_inline]] inline Vector<float> add_dot_products(Vector<float> sum, Pairs a, Pairs b) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
  return detail::add_dot_products_avx512(sum, a, b);
#else
  return detail::add_widened_products(sum, a, b);
#endif
}

// Returns the pairs (even[i], odd[i]) for 0 <= i < kLanes<float>.
[[gnu::always_inline]] inline Pairs interleave_rows(const BFloat16* even, const BFloat16* odd) {
  detail::HalfVector low, high;
  std::memcpy(&low, even, sizeof(low));
  std::memcpy(&high, odd, sizeof(high));
  return detail::widen_lanes(low) | detail::widen_lanes(high) << 16;
}

// Rounds the elements to bfloat16 (nearest even) and returns the pairs (even[i], odd[i]).
[[gnu::always_inline]] inline Pairs narrow_pairs(Vector<float> even, Vector<float> odd) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
  const auto halves = std::bit_cast<detail::PairElements>(detail::narrow_and_concat(even, odd));
  return std::bit_cast<Pairs>(detail::interleave_halves(
      halves, std::make_integer_sequence<int, static_cast<int>(2 * kLanes<float>)>()));
#else
  return detail::round_to_pairs(even, odd);
#endif
}

// Stores v, rounded to bfloat16, for later use as an operand of add_dot_products(). With AVX512-BF16,
// subnormal elements become zero. Without AVX512-BF16, the result is the same as with store().
[[gnu::always_inline]] inline void store_dot_product_operand(BFloat16* target, Vector<float> v) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
  const Pairs narrowed = detail::narrow_and_concat(v, v);
  std::memcpy(static_cast<void*>(target), &narrowed, sizeof(narrowed) / 2);
#else
  store(target, v);
#endif
}

}  // namespace tapeformer::cpu
