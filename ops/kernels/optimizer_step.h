// Optimizer arithmetic on arrays of n elements; the rules are those of ops/optimizer_step.h.
#pragma once

#include <cstdint>

namespace tapeformer {

struct StepRule;

namespace cpu {

// `second` may be null.
template <class T>
void optimizer_step(const StepRule& rule, double gradient_scale, T* parameter, const T* gradient, T* first,
                    T* second, int64_t n);
template <class T>
double squared_norm(const T* x, int64_t n);
template <class T>
void average_into(T* average, const T* value, double decay, int64_t n);

}  // namespace cpu
}  // namespace tapeformer
