#include "ops/kernels/softmax.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

// A row of `dim` elements in the registers of a warp. `Row` is a WarpRow. All lanes of the warp must call the
// member functions together.
template <class T, class Row>
class NarrowRow {
 public:
  __device__ NarrowRow(const T* row, int64_t dim) : dim_(static_cast<int>(dim)) {
    values_.load(row, dim_, 0);
  }
  // Calls f(value, column) for each element.
  template <class F>
  __device__ void for_each(F&& f) const {
    Row::for_each(dim_, [&](int k, int column) { f(values_.values[k], column); });
  }
  template <class F>
  __device__ T sum(F&& f) const {
    T total = 0;
    for_each([&](T value, int column) { total += f(value, column); });
    return warp_reduce<Plus>(total);
  }
  __device__ T maximum() const {
    T result = -INFINITY;
    for_each([&](T value, int) { result = Maximum::apply(result, value); });
    return warp_reduce<Maximum>(result);
  }
  template <class F>
  __device__ void store(T* to, F&& f) const {
    Row out{};
    Row::for_each(dim_, [&](int k, int column) { out.values[k] = f(values_.values[k], column); });
    out.store(to, dim_);
  }

 private:
  int dim_;
  Row values_;
};

// A row of any width in memory, with the functions of NarrowRow. All threads of a block call the functions.
template <class T>
class WideRow {
 public:
  __device__ WideRow(const T* row, int64_t dim) : row_(row), dim_(dim) {}
  template <class F>
  __device__ void for_each(F&& f) const {
    for (int64_t i = threadIdx.x; i < dim_; i += blockDim.x) f(row_[i], i);
  }
  template <class F>
  __device__ T sum(F&& f) const {
    T total = 0;
    for_each([&](T value, int64_t column) { total += f(value, column); });
    return block_sum(total);
  }
  __device__ T maximum() const {
    T result = -INFINITY;
    for_each([&](T value, int64_t) { result = Maximum::apply(result, value); });
    return block_max(result);
  }
  template <class F>
  __device__ void store(T* to, F&& f) const {
    for (int64_t i = threadIdx.x; i < dim_; i += blockDim.x) to[i] = f(row_[i], i);
  }

 private:
  const T* row_;
  int64_t dim_;
};

// Returns the number that is subtracted from each element of a row before exp(), which is the maximum of the
// row, or 0 if the maximum is infinite. If all elements of the row are -inf, subtraction of the maximum would
// give NaN.
template <class T, class Row>
__device__ T compute_shift(const Row& row) {
  const T maximum = row.maximum();
  return std::isinf(maximum) ? T{0} : maximum;
}

// The following structs are function objects. For each row, the softmax kernels call f(row_index, row,
// is_row_leader) with such a function object f. `row` is a NarrowRow or a WideRow. is_row_leader is true in
// exactly one of the threads that process the row.

// Computes the log-sum-exp of a row of logits and, if `targets` is not null, the cross entropy loss.
template <class T>
struct LogSumExp {
  const T* x;
  T* lse;
  const int64_t* targets;  // null if no losses are computed
  T* losses;
  int64_t classes;
  T smoothing = 0, z_loss = 0;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool is_row_leader) const {
    const T shift = compute_shift<T>(row);
    const T result = std::log(row.sum([=](T value, int64_t) { return std::exp(value - shift); })) + shift;
    const T total = smoothing > 0 ? row.sum([](T value, int64_t) { return value; }) : T{0};
    if (!is_row_leader) return;
    lse[row_index] = result;
    if (!targets) return;
    const int64_t target = targets[row_index];
    const bool inside = target >= 0 && target < classes;
    T loss = result - (1 - smoothing) * (inside ? x[row_index * classes + target] : static_cast<T>(NAN));
    if (smoothing > 0) loss -= smoothing / static_cast<T>(classes) * total;
    if (z_loss > 0) loss += z_loss * result * result;
    losses[row_index] = loss;
  }
};

// Computes the softmax of a row. A row in which all elements are -inf gives zeros.
template <class T>
struct Softmax {
  T* y;
  int64_t classes;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool) const {
    const T shift = compute_shift<T>(row);
    const T total = row.sum([=](T value, int64_t) { return std::exp(value - shift); });
    const T inverse = total == 0 ? T{0} : 1 / total;
    row.store(y + row_index * classes, [=](T value, int64_t) { return std::exp(value - shift) * inverse; });
  }
};

template <class T>
struct LogSoftmax {
  T* y;
  int64_t classes;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool) const {
    const T shift = compute_shift<T>(row);
    const T lse = std::log(row.sum([=](T value, int64_t) { return std::exp(value - shift); })) + shift;
    // If all elements are -inf, the results are -inf and not NaN.
    const T norm = lse == -INFINITY ? T{0} : lse;
    row.store(y + row_index * classes, [=](T value, int64_t) { return value - norm; });
  }
};

// Computes gx = y * (g - sum(g * y)), where y is the softmax and g is the gradient of y. `row` is a row of g.
// The elements of y are read twice, the second time from the cache.
template <class T>
struct SoftmaxBackward {
  const T* __restrict__ y;
  T* __restrict__ gx;
  int64_t classes;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool) const {
    const T* const y_row = y + row_index * classes;
    const T dot = row.sum([=](T g, int64_t column) { return g * y_row[column]; });
    row.store(gx + row_index * classes, [=](T g, int64_t column) { return y_row[column] * (g - dot); });
  }
};

// Computes gx = g - exp(y) * sum(g), where y is the log-softmax and g is the gradient of y. `row` is a row of
// g.
template <class T>
struct LogSoftmaxBackward {
  const T* __restrict__ y;
  T* __restrict__ gx;
  int64_t classes;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool) const {
    const T* const y_row = y + row_index * classes;
    const T total = row.sum([](T g, int64_t) { return g; });
    row.store(gx + row_index * classes,
              [=](T g, int64_t column) { return g - std::exp(y_row[column]) * total; });
  }
};

// Computes the gradient of the cross entropy loss of a row of logits, times `scale`.
template <class T>
struct CrossEntropyBackward {
  const T* lse;
  const int64_t* targets;
  const T* scale;
  T* gx;
  int64_t classes;
  T smoothing, z_loss;
  template <class Row>
  __device__ void operator()(int64_t row_index, const Row& row, bool) const {
    const int64_t target = targets[row_index];
    const bool inside = target >= 0 && target < classes;
    const T factor = inside || scale[row_index] == 0 ? scale[row_index] : static_cast<T>(NAN),
            shift = lse[row_index];
    const T softmax_scale = z_loss > 0 ? factor * (1 + 2 * z_loss * shift) : factor,
            uniform = factor * smoothing / static_cast<T>(classes);
    const T target_share = factor * (1 - smoothing);
    row.store(gx + row_index * classes, [=](T value, int64_t column) {
      if (factor == 0) return T{0};
      return std::exp(value - shift) * softmax_scale - uniform - (column == target ? target_share : T{0});
    });
  }
};

template <class T, class Row, class RowFunction>
__global__ void narrow_kernel(const T* x, int64_t rows, int64_t classes, RowFunction row_function) {
  for (int64_t row = first_warp_row(); row < rows; row += warp_row_stride())
    row_function(row, NarrowRow<T, Row>(x + row * classes, classes), threadIdx.x % kWarpSize == 0);
}

template <class T, class RowFunction>
__global__ void wide_kernel(const T* x, int64_t classes, RowFunction row_function) {
  row_function(int64_t{blockIdx.x}, WideRow<T>(x + blockIdx.x * classes, classes), threadIdx.x == 0);
}

// Calls row_function for each row of x. The kernels use Packs only if `x` and `out` are aligned to 16 bytes.
// `out` is the array of shape (rows, classes) that row_function writes. If row_function writes no such array,
// the caller passes `x`.
template <class T, class RowFunction>
void launch_over_rows(const T* x, const T* out, int64_t rows, int64_t classes,
                      const RowFunction& row_function) {
  const bool is_launched = visit_warp_row<T>(classes, are_aligned_to_packs(x, out), [&](auto row) {
    launch(narrow_kernel<T, decltype(row), RowFunction>, make_warp_row_launch(rows), x, rows, classes,
           row_function);
  });
  if (!is_launched) launch(wide_kernel<T, RowFunction>, make_row_launch(rows), x, classes, row_function);
}

}  // namespace

template <class T>
void row_logsumexp(Backend, const T* x, T* lse, int64_t rows, int64_t classes) {
  launch_over_rows(x, x, rows, classes, LogSumExp<T>{x, lse, nullptr, nullptr, classes});
}

template <class T>
void row_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes) {
  launch_over_rows(x, y, rows, classes, Softmax<T>{y, classes});
}

template <class T>
void row_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes) {
  launch_over_rows(g, gx, rows, classes, SoftmaxBackward<T>{y, gx, classes});
}

template <class T>
void row_log_softmax(Backend, const T* x, T* y, int64_t rows, int64_t classes) {
  launch_over_rows(x, y, rows, classes, LogSoftmax<T>{y, classes});
}

template <class T>
void row_log_softmax_backward(Backend, const T* g, const T* y, T* gx, int64_t rows, int64_t classes) {
  launch_over_rows(g, gx, rows, classes, LogSoftmaxBackward<T>{y, gx, classes});
}

template <class T>
void cross_entropy_forward(Backend, const CrossEntropyOptions& options, const T* x, const int64_t* targets,
                           T* lse, T* losses, int64_t rows, int64_t classes) {
  launch_over_rows(x, x, rows, classes,
                   LogSumExp<T>{x, lse, targets, losses, classes, static_cast<T>(options.label_smoothing),
                                static_cast<T>(options.z_loss)});
}

template <class T>
void cross_entropy_backward(Backend, const CrossEntropyOptions& options, const T* x, const T* lse,
                            const int64_t* targets, const T* scale, T* gx, int64_t rows, int64_t classes) {
  launch_over_rows(
      x, gx, rows, classes,
      CrossEntropyBackward<T>{lse, targets, scale, gx, classes, static_cast<T>(options.label_smoothing),
                              static_cast<T>(options.z_loss)});
}

template <class T>
struct SoftmaxKernels {
  inline static const FunctionInstances all{&row_logsumexp<T>,
                                            &row_softmax<T>,
                                            &row_softmax_backward<T>,
                                            &row_log_softmax<T>,
                                            &row_log_softmax_backward<T>,
                                            &cross_entropy_forward<T>,
                                            &cross_entropy_backward<T>};
};
TAPEFORMER_FLOAT(template struct SoftmaxKernels<float>;)
TAPEFORMER_DOUBLE(template struct SoftmaxKernels<double>;)

}  // namespace tapeformer::cuda
