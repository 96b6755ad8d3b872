#include "ops/kernels/row_loss.h"

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "core/instances.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kMaxPartials = 256;  // maximum number of blocks

// Counts the nonzero elements of the mask. Atomic sums of integers are deterministic.
__global__ void count_kernel(const uint8_t* row_mask, unsigned* count, int64_t rows) {
  int selected = 0;
  for (int64_t i = first_element(); i < rows; i += element_stride()) selected += row_mask[i] != 0;
  selected = block_sum(selected);
  if (threadIdx.x == 0) atomicAdd(count, static_cast<unsigned>(selected));
}

template <class T>
__global__ void weights_kernel(const uint8_t* row_mask, const unsigned* count, T* weights, int64_t rows) {
  const double total = row_mask ? static_cast<double>(*count) : static_cast<double>(rows);
  const T weight = static_cast<T>(1 / (total > 0 ? total : 1));
  for (int64_t i = first_element(); i < rows; i += element_stride())
    weights[i] = !row_mask || row_mask[i] ? weight : T{0};
}

template <class T>
__global__ void partial_kernel(const T* values, const T* weights, double* partial, int64_t rows) {
  double sum = 0;
  for (int64_t i = first_element(); i < rows; i += element_stride())
    if (weights[i] != 0) sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class T>
__global__ void total_kernel(const double* partial, int64_t count, T* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}

template <class T>
__global__ void multiply_by_kernel(const T* x, const T* factor, T* y, int64_t n) {
  const T by = *factor;
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = x[i] * by;
}

Launch over_partials(int64_t rows, SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min((rows + kDefaultBlockSize - 1) / kDefaultBlockSize, kMaxPartials);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kDefaultBlockSize), 0, where};
}

}  // namespace

template <class T>
void compute_row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows) {
  const Scratch<unsigned> count(1);
  if (row_mask) {
    fill_zero(count.data(), sizeof(unsigned));
    launch(count_kernel, over_partials(rows), row_mask, count.data(), rows);
  }
  launch(weights_kernel<T>, over_elements(rows), row_mask, count.data(), weights, rows);
}

template <class T>
void compute_weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows) {
  const Launch shape = over_partials(rows);
  const Scratch<double> partial(shape.grid.x);
  launch(partial_kernel<T>, shape, values, weights, partial.data(), rows);
  launch(total_kernel<T>, over_rows(1), partial.data(), int64_t{shape.grid.x}, total);
}

template <class T>
void multiply_by(Backend, const T* x, const T* factor, T* y, int64_t n) {
  launch(multiply_by_kernel<T>, over_elements(n), x, factor, y, n);
}

template <class T>
struct RowLossKernels {
  inline static const Instances all{&compute_row_weights<T>, &compute_weighted_sum<T>, &multiply_by<T>};
};
template struct RowLossKernels<float>;
template struct RowLossKernels<double>;

}  // namespace tapeformer::cuda
