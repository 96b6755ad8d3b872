#include "ops/kernels/rotary.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {
namespace {

// Rotates the features `pair` and `pair` + rotated / 2 of each row, and copies the others. A thread processes
// one pair of features at a time. The rotation angle is reduced to [0, 2π) in double precision, because
// float32 is too inaccurate at large positions.
template <class T>
__global__ void rotate_kernel(RotaryShape s, GraphStep step, AttentionRows<const T> x, AttentionRows<T> out,
                              int64_t pairs) {
  using C = Compute<T>;
  constexpr double kTurn = 6.283185307179586476925;
  const int64_t half = s.rotated / 2, half_dim = (s.dim + 1) / 2,
                first = s.advances_in_graphs ? step.current_step() : s.first_position;
  for (int64_t i = first_element(); i < pairs; i += element_stride()) {
    const int64_t pair = i % half_dim, head = i / half_dim % s.heads, row = i / half_dim / s.heads;
    const int64_t position = row % s.length, example = row / s.length;
    const T* const source = x.row(example, position, head);
    T* const target = out.row(example, position, head);
    if (pair >= half) {
      for (const int64_t copied : {2 * pair, 2 * pair + 1})
        if (copied < s.dim) target[copied] = source[copied];
      continue;
    }
    const double angle =
        compute_rotary_angle(s.base, s.scale, pair, s.rotated) * static_cast<double>(first + position);
    const C reduced = static_cast<C>(angle - kTurn * std::floor(angle / kTurn));
    const C amplitude = static_cast<C>(s.amplitude), cosine = amplitude * std::cos(reduced),
            sine = (s.inverse ? -amplitude : amplitude) * std::sin(reduced);
    const C a = static_cast<C>(source[pair]), b = static_cast<C>(source[half + pair]);
    target[pair] = T(a * cosine - b * sine);
    target[half + pair] = T(b * cosine + a * sine);
  }
}

}  // namespace

template <class T>
void rotate_pairs(Backend, const RotaryShape& s, AttentionRows<const T> x, AttentionRows<T> out) {
  const int64_t pairs = s.batch * s.length * s.heads * ((s.dim + 1) / 2);
  launch(rotate_kernel<T>, make_elementwise_launch(pairs), s, GraphStep(s.first_position), x, out, pairs);
}

template <class T>
struct RotaryKernels {
  inline static const FunctionInstances all{&rotate_pairs<T>};
};
template struct RotaryKernels<float>;
template struct RotaryKernels<double>;
template struct RotaryKernels<BFloat16>;

}  // namespace tapeformer::cuda
