#include "ops/kernels/row_loss.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kMaxBlocks = 256;  // maximum number of blocks of the kernels that compute sums

// Adds the number of nonzero elements of row_mask to *count. Atomic additions of integers are deterministic.
__global__ void count_rows_kernel(const uint8_t* row_mask, unsigned* count, int64_t rows) {
  int selected = 0;
  for (int64_t i = first_element(); i < rows; i += element_stride()) selected += row_mask[i] != 0;
  selected = block_sum(selected);
  if (threadIdx.x == 0) atomicAdd(count, static_cast<unsigned>(selected));
}

// Sets the weights of the selected rows to 1 / (number of selected rows), and other weights to 0. If row_mask
// is null, all rows are selected.
template <class T>
__global__ void weights_kernel(const uint8_t* row_mask, const unsigned* count, T* weights, int64_t rows) {
  const double total = row_mask ? static_cast<double>(*count) : static_cast<double>(rows);
  const T weight = static_cast<T>(1 / (total > 0 ? total : 1));
  for (int64_t i = first_element(); i < rows; i += element_stride())
    weights[i] = !row_mask || row_mask[i] ? weight : T{0};
}

// Writes the sum of weights[i] * values[i] over the rows of each block to partial_sums[blockIdx.x]. Rows with
// weight 0 are skipped.
template <class T>
__global__ void weighted_sum_kernel(const T* values, const T* weights, double* partial_sums, int64_t rows) {
  double sum = 0;
  for (int64_t i = first_element(); i < rows; i += element_stride())
    if (weights[i] != 0) sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = sum;
}

// Writes the sum of all elements of `partial_sums` to *total. The kernel is launched with one thread block.
template <class T>
__global__ void total_kernel(const double* partial_sums, int64_t count, T* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial_sums[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = static_cast<T>(sum);
}

template <class T>
__global__ void multiply_by_kernel(const T* x, const T* factor, T* y, int64_t n) {
  const T multiplier = *factor;
  for (int64_t i = first_element(); i < n; i += element_stride()) y[i] = x[i] * multiplier;
}

// Returns a launch configuration with at most kMaxBlocks thread blocks, for kernels whose threads loop over
// the rows.
LaunchConfig over_row_blocks(int64_t rows, SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min((rows + kDefaultBlockSize - 1) / kDefaultBlockSize, kMaxBlocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kDefaultBlockSize), 0, where};
}

}  // namespace

template <class T>
void compute_row_weights(Backend, const uint8_t* row_mask, T* weights, int64_t rows) {
  const Scratch<unsigned> count(1);
  if (row_mask) {
    fill_zero(count.data(), sizeof(unsigned));
    launch(count_rows_kernel, over_row_blocks(rows), row_mask, count.data(), rows);
  }
  launch(weights_kernel<T>, make_elementwise_launch(rows), row_mask, count.data(), weights, rows);
}

template <class T>
void compute_weighted_sum(Backend, const T* values, const T* weights, T* total, int64_t rows) {
  const LaunchConfig shape = over_row_blocks(rows);
  const Scratch<double> partial_sums(shape.grid.x);
  launch(weighted_sum_kernel<T>, shape, values, weights, partial_sums.data(), rows);
  launch(total_kernel<T>, make_row_launch(1), partial_sums.data(), int64_t{shape.grid.x}, total);
}

template <class T>
void multiply_by_device_scalar(Backend, const T* x, const T* factor, T* y, int64_t n) {
  launch(multiply_by_kernel<T>, make_elementwise_launch(n), x, factor, y, n);
}

template <class T>
struct RowLossKernels {
  inline static const FunctionInstances all{&compute_row_weights<T>, &compute_weighted_sum<T>,
                                            &multiply_by_device_scalar<T>};
};
template struct RowLossKernels<float>;
template struct RowLossKernels<double>;

}  // namespace tapeformer::cuda
