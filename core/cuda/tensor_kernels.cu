#include "core/tensor_kernels.h"

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "core/tensor.h"

namespace tapeformer::cuda {
namespace {

// The layout of two strided arrays of the same shape.
struct Strided {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t to[Shape::kMaxRank] = {}, from[Shape::kMaxRank] = {};
};

struct Offsets {
  int64_t to = 0, from = 0;
};

__device__ Offsets offsets_of(const Strided& layout, int64_t element) {
  Offsets offsets;
#pragma unroll 1  // division is expensive, and most layouts have one or two dimensions
  for (int dim = layout.rank - 1; dim >= 0; --dim) {
    const int64_t position = element % layout.size[dim];
    element /= layout.size[dim];
    offsets.to += position * layout.to[dim];
    offsets.from += position * layout.from[dim];
  }
  return offsets;
}

template <class To, class From>
__global__ void copy_kernel(Strided layout, To* to, const From* from, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const Offsets at = offsets_of(layout, i);
    to[at.to] = convert_element<To>(from[at.from]);
  }
}

template <class T>
__global__ void fill_kernel(Strided layout, T* to, double value, int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride())
    to[offsets_of(layout, i).to] = convert_element<T>(value);
}

template <class T>
__global__ void add_kernel(Strided layout, T* to, const T* from, Compute<T> scale, int64_t n) {
  using C = Compute<T>;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const Offsets at = offsets_of(layout, i);
    to[at.to] = convert_element<T>(convert_element<C>(to[at.to]) + scale * convert_element<C>(from[at.from]));
  }
}

// Returns the layout with adjacent dimensions merged where both arrays are contiguous.
Strided layout_of(const Shape& shape, const Shape& to, const Shape& from) {
  Strided layout;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (shape[dim] == 1) continue;
    const int last = layout.rank - 1;
    if (last >= 0 && layout.to[last] == to[dim] * shape[dim] && layout.from[last] == from[dim] * shape[dim]) {
      layout.size[last] *= shape[dim];
      layout.to[last] = to[dim];
      layout.from[last] = from[dim];
    } else {
      layout.size[layout.rank] = shape[dim];
      layout.to[layout.rank] = to[dim];
      layout.from[layout.rank] = from[dim];
      ++layout.rank;
    }
  }
  return layout;
}

}  // namespace

void fill_zero(Backend, void* data, int64_t bytes) {
  fill_zero(data, bytes);
}

void copy_elements(Backend, const Tensor& to, const Tensor& from) {
  if (to.dtype() == from.dtype() && to.is_contiguous() && from.is_contiguous()) {
    copy_bytes(to.raw(), to.device(), from.raw(), from.device(), to.bytes());
    return;
  }
  const Strided layout = layout_of(to.shape(), to.strides(), from.strides());
  visit_any(to.dtype(), [&](auto to_tag) {
    visit_any(from.dtype(), [&](auto from_tag) {
      using To = decltype(to_tag);
      using From = decltype(from_tag);
      launch(copy_kernel<To, From>, over_elements(to.numel()), layout, to.data<To>(), from.data<From>(),
             to.numel());
    });
  });
}

void fill_elements(Backend, const Tensor& to, double value) {
  const Strided layout = layout_of(to.shape(), to.strides(), to.strides());
  visit_any(to.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(fill_kernel<T>, over_elements(to.numel()), layout, to.data<T>(), value, to.numel());
  });
}

void add_elements(Backend, const Tensor& to, const Tensor& from, double scale) {
  const Strided layout = layout_of(to.shape(), to.strides(), from.strides());
  visit_stored("add_from", to.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(add_kernel<T>, over_elements(to.numel()), layout, to.data<T>(), from.data<T>(), scale, to.numel());
  });
}

}  // namespace tapeformer::cuda
