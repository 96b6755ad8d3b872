// Conversions of rows between float and BFloat16, and the choice of instructions for BFloat16 products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/dtype.h"

namespace tapeformer::cpu {

// Converts `count` elements to float. The conversion is exact.
void widen(const BFloat16* source, int64_t count, float* target);

// Converts `count` elements to BFloat16. Rounds to nearest even; NaN becomes a quiet NaN.
void narrow(const float* source, int64_t count, BFloat16* target);

// Converts `count` elements. From and To are the same type, or one is float and the other BFloat16.
template <class From, class To>
void convert_elements(const From* source, int64_t count, To* target) {
  if constexpr (std::is_same_v<From, To>)
    std::copy_n(source, count, target);
  else if constexpr (std::is_same_v<From, BFloat16>)
    widen(source, count, target);
  else
    narrow(source, count, target);
}

// Returns whether kernels that do not use AMX multiply BFloat16 elements with dot-product instructions. If
// the result is false, these kernels convert the elements to float before multiplication. `has_instructions`
// states whether the dot-product instructions are present.
// The default is `has_instructions && has_fast_bfloat16_dot_products()`. The environment variable
// TAPEFORMER_BFLOAT16_DOT_PRODUCTS replaces the default: 0 selects float, and any other value selects dot
// products. If the dot-product instructions are missing, softmax attention, the recurrent products of LSTMs
// and the linear layers of a decoder emulate dot products, and the linear layers of other passes multiply in
// float.
bool prefers_bfloat16_dot_products(bool has_instructions);

}  // namespace tapeformer::cpu
