#include <algorithm>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/gated_linear_attention.h"

namespace tapeformer::cuda {
namespace {

constexpr int kGatedStepThreads = 256;
// Number of elements of the state that a thread keeps in registers.
constexpr int kGatedStepElements = 16;

// The sums over the rows of the state that a step needs: Ŝᵀp and Ŝᵀq for a column, where Ŝ is the state after
// the decay, and k · q.
template <class T>
struct StepSums {
  T erased = 0, result = 0, key_query = 0;
};

// The rows of the operands of a head.
template <class T>
struct StepHead {
  const T *q, *k, *erase, *log_decay;
  int64_t decay_dim;

  __device__ T decay(int row) const {
    return log_decay ? DeviceMath::exp_nonpositive(log_decay[decay_dim == 1 ? 0 : row]) : T{1};
  }
  // Adds the terms of a row, where x is an element of Ŝ.
  __device__ void add_terms(int row, T x, StepSums<T>& sums) const {
    if (erase) sums.erased += erase[row] * x;
    sums.result += q[row] * x;
    sums.key_query += k[row] * q[row];
  }
};

// Adds up the sums of the threads with the same column, which are `columns` threads apart.
template <class T>
__device__ StepSums<T> add_groups(const StepSums<T>& sums, int columns) {
  __shared__ T memory[3][kGatedStepThreads];
  const int thread = static_cast<int>(threadIdx.x);
  memory[0][thread] = sums.erased;
  memory[1][thread] = sums.result;
  memory[2][thread] = sums.key_query;
  __syncthreads();
  StepSums<T> total;
  for (int other = thread % columns; other < kGatedStepThreads; other += columns) {
    total.erased += memory[0][other];
    total.result += memory[1][other];
    total.key_query += memory[2][other];
  }
  return total;
}

// Computes gated_linear_attention_step(). Each block processes `columns` columns of a head. The threads form
// groups of `columns` threads, and each group processes some rows. With u = β (v - Ŝᵀe), the result is
//   out = (Ŝ + k uᵀ)ᵀ q = Ŝᵀq + (k · q) u,
// so that the kernel reads the state once, unless a thread has more than kGatedStepElements elements.
template <class T, class O>
__global__ void __launch_bounds__(kGatedStepThreads, 2)
    gated_step_kernel(GatedLinearAttentionShape s, GatedLinearAttentionInputs<T> in, int columns, T* states,
                      AttentionRows<O> out) {
  const int thread = static_cast<int>(threadIdx.x), groups = kGatedStepThreads / columns;
  const int64_t head = blockIdx.x % s.heads, example = blockIdx.x / s.heads;
  const int64_t column = int64_t{blockIdx.y} * columns + thread % columns;
  const bool is_active = column < s.value_dim;
  const int group = thread / columns, end = is_active ? static_cast<int>(s.dim) : 0;
  const int64_t stride = s.value_dim;
  T* const state = states + int64_t{blockIdx.x} * s.dim * s.value_dim + column;
  const StepHead<T> rows{in.q.row(example, 0, head), in.k.row(example, 0, head),
                         in.erase.data ? in.erase.row(example, 0, head) : nullptr,
                         in.log_decay.data ? in.log_decay.row(example, 0, head) : nullptr, s.decay_dim};
  T elements[kGatedStepElements];
  StepSums<T> sums;
#pragma unroll
  for (int i = 0; i < kGatedStepElements; ++i)
    if (const int row = group + i * groups; row < end) elements[i] = state[row * stride];
#pragma unroll
  for (int i = 0; i < kGatedStepElements; ++i)
    if (const int row = group + i * groups; row < end) {
      elements[i] *= rows.decay(row);
      rows.add_terms(row, elements[i], sums);
    }
  const int first_reread = group + kGatedStepElements * groups;
  for (int row = first_reread; row < end; row += groups)
    rows.add_terms(row, rows.decay(row) * state[row * stride], sums);
  sums = add_groups(sums, columns);
  if (!is_active) return;
  const T beta = in.beta.data ? *in.beta.row(example, 0, head) : T{1};
  const T written = beta * (in.v.row(example, 0, head)[column] - sums.erased);
#pragma unroll
  for (int i = 0; i < kGatedStepElements; ++i)
    if (const int row = group + i * groups; row < end)
      state[row * stride] = elements[i] + rows.k[row] * written;
  for (int row = first_reread; row < end; row += groups) {
    T& element = state[row * stride];
    element = rows.decay(row) * element + rows.k[row] * written;
  }
  if (group == 0)
    out.row(example, 0, head)[column] = convert_element<O>(sums.result + sums.key_query * written);
}

}  // namespace

template <class T, class O>
void gated_linear_attention_step(Backend, const GatedLinearAttentionShape& s,
                                 const GatedLinearAttentionInputs<T>& inputs, T* state,
                                 AttentionRows<O> out) {
  int columns = 1;
  while (columns < kWarpSize && columns < s.value_dim) columns *= 2;
  const int64_t tiles = (s.value_dim + columns - 1) / columns;
  launch(gated_step_kernel<T, O>, make_tile_launch(s.batch * s.heads, tiles, kGatedStepThreads, 0), s, inputs,
         columns, state, out);
}

template <class T, class O>
struct GatedLinearAttentionStepKernels {
  inline static const FunctionInstances all{&gated_linear_attention_step<T, O>};
};
template struct GatedLinearAttentionStepKernels<float, float>;
template struct GatedLinearAttentionStepKernels<float, BFloat16>;
template struct GatedLinearAttentionStepKernels<double, double>;

}  // namespace tapeformer::cuda
