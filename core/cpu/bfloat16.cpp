#include "core/cpu/bfloat16.h"

#include <optional>

#include "core/base/environment.h"
#include "core/base/instruction_set.h"
#include "core/cpu/vector.h"

namespace tapeformer::cpu {

void widen(const BFloat16* source, int64_t count, float* target) {
  constexpr int64_t kLength = kLanes<float>;
  for (; count >= kLength; count -= kLength, source += kLength, target += kLength)
    store(target, load(source));
  if (count > 0) store_first(target, load_first(source, count), count);
}

void narrow(const float* source, int64_t count, BFloat16* target) {
  constexpr int64_t kLength = kLanes<float>;
  constexpr int64_t kPrefetchDistance = 128;  // in elements
  for (; count >= kLength; count -= kLength, source += kLength, target += kLength) {
    __builtin_prefetch(source + kPrefetchDistance);
    store(target, load(source));
  }
  if (count > 0) store_first(target, load_first(source, count), count);
}

bool prefers_bfloat16_dot_products(bool has_instructions) {
  static const bool are_fast = has_fast_bfloat16_dot_products();
  static const std::optional<bool> choice = get_environment_flag("TAPEFORMER_BFLOAT16_DOT_PRODUCTS");
  return choice.value_or(has_instructions && are_fast);
}

}  // namespace tapeformer::cpu
