#include "ops/kernels/row_loss.h"

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

template <class T>
void compute_row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows) {
  int64_t count = 0;
  for (int64_t i = 0; i < rows; ++i) count += !row_mask || row_mask[i];
  const T weight = static_cast<T>(1 / static_cast<double>(count > 0 ? count : 1));
  for (int64_t i = 0; i < rows; ++i) weights[i] = !row_mask || row_mask[i] ? weight : T{0};
}

template <class T>
void compute_weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i)
    if (weights[i] != 0) sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  *total = static_cast<T>(sum);
}

template <class T>
void multiply_by_device_scalar(Backend, const T* x, const T* factor, T* y, int64_t n) {
  parallel_for(n, 1 << 15, [=, by = *factor](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) y[i] = x[i] * by;
  });
}

template <class T>
struct RowLossKernels {
  inline static const FunctionInstances all{&compute_row_weights<T>, &compute_weighted_sum<T>,
                                            &multiply_by_device_scalar<T>};
};
template struct RowLossKernels<float>;
template struct RowLossKernels<double>;

}  // namespace tapeformer::cpu
