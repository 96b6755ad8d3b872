#include "ops/kernels/optimizer_step.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/array_list.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

template <class T>
using List = ArrayList<ParameterArrays<T>>;

// Writes the sum of squares of the gradient of one chunk per block to partial_sums[blockIdx.x].
template <class T>
__global__ void sum_squares_kernel(List<T> list, double* partial_sums) {
  const ArrayChunk chunk = find_block_chunk(list);
  const T* const gradient = list.entries[chunk.entry_index].gradient;
  double sum = 0;
  for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x)
    sum += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

// Adds the partial sums of sum_squares_kernel for the chunks of each list entry. Thread block i writes the
// sum for entry i to squares[i].
template <class T>
__global__ void collect_squares_kernel(List<T> list, const double* partial_sums, double* squares) {
  const int first = list.first_chunk[blockIdx.x], last = list.first_chunk[blockIdx.x + 1];
  double sum = 0;
  for (int i = first + static_cast<int>(threadIdx.x); i < last; i += static_cast<int>(blockDim.x))
    sum += partial_sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// Computes the outputs of compute_clip_scales(). The kernel is launched with one thread block.
__global__ void clip_kernel(Clipping clipping, const double* squares, int64_t count, double* scales,
                            double* norm) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total += squares[i];
  const double scale = clipping.gradient_scale;
  const double total_norm = std::sqrt(block_sum(total)) * std::fabs(scale);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const double norm_of_tensor = clipping.per_tensor ? std::sqrt(squares[i]) * std::fabs(scale) : total_norm;
    const double factor = clipping.max_norm / (norm_of_tensor + 1e-6);
    scales[i] = clipping.max_norm > 0 && factor < 1 ? scale * factor : scale;
  }
  if (threadIdx.x == 0) *norm = total_norm;
}

// The members of an UpdateRule, converted to T, for a parameter with or without weight decay.
template <class T>
struct ConvertedRule {
  T momentum, gain, beta2, one_minus_beta2, l2, shrink, step, second_scale, eps;
  bool adaptive;
  __device__ explicit ConvertedRule(const UpdateRule& rule, bool decays)
      : momentum(static_cast<T>(rule.momentum)),
        gain(static_cast<T>(rule.gain)),
        beta2(static_cast<T>(rule.beta2)),
        one_minus_beta2(static_cast<T>(1 - rule.beta2)),
        l2(static_cast<T>(decays ? rule.l2 : 0)),
        shrink(static_cast<T>(decays ? rule.shrink : 1)),
        step(static_cast<T>(rule.step_size)),
        second_scale(static_cast<T>(rule.second_scale)),
        eps(static_cast<T>(rule.eps)),
        adaptive(rule.adaptive) {}
};

// Applies the equations of UpdateRule to elements [i, i + V) of the arrays.
template <int V, class T>
__device__ void step_group(const ConvertedRule<T>& rule, const ParameterArrays<T>& arrays, T scale, T limit,
                           int64_t i) {
  T parameter[V], gradient[V], first[V], second[V] = {};
  load_group<V>(arrays.parameter + i, parameter);
  load_group<V>(arrays.gradient + i, gradient);
  load_group<V>(arrays.first_moment + i, first);
  if (arrays.second_moment) load_group<V>(arrays.second_moment + i, second);
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const T g = clamp(scale * gradient[v], limit) + rule.l2 * parameter[v];
    first[v] = rule.momentum * first[v] + rule.gain * g;
    second[v] = rule.beta2 * second[v] + rule.one_minus_beta2 * g * g;
    const T divisor = rule.adaptive ? std::sqrt(second[v]) * rule.second_scale + rule.eps : T{1};
    parameter[v] = rule.shrink * parameter[v] - rule.step * first[v] / divisor;
  }
  store_group<V>(arrays.parameter + i, parameter);
  store_group<V>(arrays.first_moment + i, first);
  if (arrays.second_moment) store_group<V>(arrays.second_moment + i, second);
}

// Updates one chunk of one list entry per block. Uses 16-byte accesses if all arrays are aligned to 16 bytes.
template <class T>
__global__ void update_kernel(const UpdateRule* step_rule, List<T> list, const double* scales, T limit) {
  constexpr int kPack = Pack<T>::kSize;
  const ArrayChunk chunk = find_block_chunk(list);
  const ParameterArrays<T> arrays = list.entries[chunk.entry_index];
  const ConvertedRule<T> rule(*step_rule, arrays.decays);
  const T scale = static_cast<T>(scales[chunk.entry_index]);
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(arrays.parameter) | reinterpret_cast<uintptr_t>(arrays.gradient) |
      reinterpret_cast<uintptr_t>(arrays.first_moment) | reinterpret_cast<uintptr_t>(arrays.second_moment);
  int64_t groups_end = chunk.begin;
  if (addresses % 16 == 0) {
    groups_end += (chunk.end - chunk.begin) / kPack * kPack;
    for (int64_t i = chunk.begin + threadIdx.x * kPack; i < groups_end; i += blockDim.x * kPack)
      step_group<kPack>(rule, arrays, scale, limit, i);
  }
  for (int64_t i = groups_end + threadIdx.x; i < chunk.end; i += blockDim.x)
    step_group<1>(rule, arrays, scale, limit, i);
}

template <class T>
__global__ void average_kernel(T* average, const T* value, const UpdateRule* rule, int64_t n) {
  const T weight = static_cast<T>(1 - rule->average_decay);
  for (int64_t i = first_element(); i < n; i += element_stride())
    average[i] += weight * (value[i] - average[i]);
}

}  // namespace

template <class T>
void compute_squared_norms(Backend, const ParameterArrays<T>* list, int64_t count, double* squares) {
  for_each_list("apply_optimizer_step", list, count, [&](const List<T>& sublist, int64_t first) {
    const int64_t chunks = sublist.first_chunk[sublist.entry_count];
    const Scratch<double> partial_sums(chunks);
    launch(sum_squares_kernel<T>, make_row_launch(chunks), sublist, partial_sums.data());
    launch(collect_squares_kernel<T>, make_row_launch(sublist.entry_count, kDefaultBlockSize / 2), sublist,
           partial_sums.data(), squares + first);
  });
}

void compute_clip_scales(Backend, const Clipping& clipping, const double* squares, int64_t count,
                         double* scales, double* norm) {
  launch(clip_kernel, make_row_launch(1), clipping, squares, count, scales, norm);
}

template <class T>
void apply_optimizer_step(Backend, const UpdateRule* rule, const ParameterArrays<T>* list, int64_t count,
                          const double* scales, double max_value) {
  for_each_list("apply_optimizer_step", list, count, [&](const List<T>& sublist, int64_t first) {
    launch(update_kernel<T>, make_row_launch(sublist.first_chunk[sublist.entry_count]), rule, sublist,
           scales + first, static_cast<T>(max_value));
  });
}

template <class T>
void update_moving_average(Backend, T* average, const T* value, const UpdateRule* rule, int64_t n) {
  launch(average_kernel<T>, make_elementwise_launch(n), average, value, rule, n);
}

template <class T>
struct OptimizerKernels {
  inline static const FunctionInstances all{&compute_squared_norms<T>, &apply_optimizer_step<T>,
                                            &update_moving_average<T>};
};
template struct OptimizerKernels<float>;
template struct OptimizerKernels<double>;

}  // namespace tapeformer::cuda
