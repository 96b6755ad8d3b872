#include "core/cpu/bfloat16.h"

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
  for (; count >= kLength; count -= kLength, source += kLength, target += kLength)
    store(target, load(source));
  if (count > 0) store_first(target, load_first(source, count), count);
}

}  // namespace tapeformer::cpu
