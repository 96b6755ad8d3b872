#include "core/tensor_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/cpu/bfloat16.h"
#include "core/cpu/vector.h"
#include "core/tensor.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;  // minimum number of elements per thread
constexpr int64_t kPart = 4096;      // for_each_row() splits rows that have more than kPart columns

// Returns the offset of a row, in elements. `row` is an index over all dimensions except the last dimension.
int64_t compute_row_offset(const Shape& shape, const Shape& strides, int64_t row) {
  int64_t offset = 0;
  for (int dim = shape.rank() - 2; dim >= 0; --dim) {
    offset += (row % shape[dim]) * strides[dim];
    row /= shape[dim];
  }
  return offset;
}

// Calls f(to, from, columns, to_stride, from_stride) for parts of the rows of two tensors of the same shape.
// `to` and `from` are the addresses of a part in the two tensors. `to_stride` and `from_stride` are the
// distances between adjacent columns, in elements. A part has at most kPart columns, so that several threads
// can process one long row.
template <class To, class From, class F>
void for_each_row(const Tensor& target, const Tensor& source, F&& f) {
  const Shape& shape = target.shape();
  const int64_t columns = shape.rank() ? shape[-1] : 1;
  const int64_t rows = columns ? target.numel() / columns : 0, parts = (columns + kPart - 1) / kPart;
  const int64_t to_stride = shape.rank() ? target.strides()[-1] : 1;
  const int64_t from_stride = shape.rank() ? source.strides()[-1] : 1;
  To* const to = target.data<To>();
  const From* const from = source.data<From>();
  const int64_t grain = kGrain / std::clamp<int64_t>(columns, 1, kPart);
  parallel_for(rows * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts, first = i % parts * kPart;
      f(to + compute_row_offset(shape, target.strides(), row) + first * to_stride,
        from + compute_row_offset(shape, source.strides(), row) + first * from_stride,
        std::min(kPart, columns - first), to_stride, from_stride);
    }
  });
}

template <class To, class From>
void copy_row(To* to, const From* from, int64_t columns, int64_t to_stride, int64_t from_stride) {
  if (to_stride == 1 && from_stride == 1) {
    if constexpr (std::is_same_v<To, From>)
      return static_cast<void>(
          std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(columns) * sizeof(To)));
    if constexpr (std::is_same_v<To, BFloat16> && std::is_same_v<From, float>)
      return narrow(from, columns, to);
    if constexpr (std::is_same_v<To, float> && std::is_same_v<From, BFloat16>)
      return widen(from, columns, to);
  }
  for (int64_t i = 0; i < columns; ++i) to[i * to_stride] = convert_element<To>(from[i * from_stride]);
}

template <class T>
void add_row(T* to, const T* from, Compute<T> scale, int64_t columns, int64_t to_stride,
             int64_t from_stride) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    int64_t i = 0;
    if (to_stride == 1 && from_stride == 1)
      for (; i + kLanes<T> <= columns; i += kLanes<T>) store(to + i, load(to + i) + scale * load(from + i));
    for (; i < columns; ++i)
      to[i * to_stride] =
          BFloat16(static_cast<float>(to[i * to_stride]) + scale * static_cast<float>(from[i * from_stride]));
  } else if (to_stride == 1 && from_stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) to[i] += scale * from[i];
  } else {
    for (int64_t i = 0; i < columns; ++i) to[i * to_stride] += scale * from[i * from_stride];
  }
}

}  // namespace

void fill_zero(Backend, void* data, int64_t bytes) {
  parallel_for(bytes, kGrain * 4, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(data) + begin, 0, static_cast<size_t>(end - begin));
  });
}

void copy_elements(Backend, const Tensor& to, const Tensor& from) {
  visit_dtype(to.dtype(), [&](auto to_tag) {
    visit_dtype(from.dtype(), [&](auto from_tag) {
      using To = decltype(to_tag);
      using From = decltype(from_tag);
      for_each_row<To, From>(to, from, copy_row<To, From>);
    });
  });
}

void fill_elements(Backend, const Tensor& to, double value) {
  const Tensor one = Tensor::from_vector<double>({value}, {1});
  to.copy_from(one.view(to.shape(), Shape::filled(to.rank(), 0)));
}

void add_elements(Backend, const Tensor& to, const Tensor& from, double scale) {
  visit_floating_dtype("add_scaled", to.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for_each_row<T, T>(to, from, [&](T* row, const T* added, int64_t columns, int64_t step, int64_t by) {
      add_row(row, added, static_cast<Compute<T>>(scale), columns, step, by);
    });
  });
}

}  // namespace tapeformer::cpu
