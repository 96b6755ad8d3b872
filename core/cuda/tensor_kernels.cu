#include "core/tensor_kernels.h"

#include <algorithm>
#include <type_traits>

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "core/tensor.h"

namespace tapeformer::cuda {
namespace {

// The common shape of two strided arrays, `to` and `from`, and their strides.
struct StridedLayout {
  int rank = 0;
  int64_t size[Shape::kMaxRank] = {};
  int64_t to[Shape::kMaxRank] = {}, from[Shape::kMaxRank] = {};  // strides
};

// Offsets of the same element in the arrays `to` and `from`.
struct Offsets {
  int64_t to = 0, from = 0;
};

// Returns the offsets of the element with index `element` in row-major order.
__device__ Offsets compute_offsets(const StridedLayout& layout, int64_t element) {
  Offsets offsets;
#pragma unroll 1  // the code of a division is large, and most layouts have one or two dimensions
  for (int dim = layout.rank - 1; dim > 0; --dim) {
    const int64_t size = layout.size[dim];
    // A 64-bit division takes several times as long as a 32-bit division.
    const int64_t quotient = element >> 32 == 0 && size >> 32 == 0
                                 ? static_cast<uint32_t>(element) / static_cast<uint32_t>(size)
                                 : element / size;
    const int64_t position = element - quotient * size;
    element = quotient;
    offsets.to += position * layout.to[dim];
    offsets.from += position * layout.from[dim];
  }
  offsets.to += element * layout.to[0];
  offsets.from += element * layout.from[0];
  return offsets;
}

// The following kernels process groups of V adjacent elements. The sizes and strides of the layout are in
// groups, not in elements.

template <class To, class From, int V>
__global__ void copy_kernel(StridedLayout layout, To* to, const From* from, int64_t groups) {
  for (int64_t i = first_element(); i < groups; i += element_stride()) {
    const Offsets offsets = compute_offsets(layout, i);
    const auto source = *reinterpret_cast<const Group<V, From>*>(from + offsets.from * V);
    store_group<V>(to + offsets.to * V, source.values);
  }
}

template <class T, int V>
__global__ void fill_kernel(StridedLayout layout, T* to, double value, int64_t groups) {
  Group<V, T> filled;
#pragma unroll
  for (int v = 0; v < V; ++v) filled.values[v] = convert_element<T>(value);
  for (int64_t i = first_element(); i < groups; i += element_stride())
    *reinterpret_cast<Group<V, T>*>(to + compute_offsets(layout, i).to * V) = filled;
}

template <class T, int V>
__global__ void add_kernel(StridedLayout layout, T* to, const T* from, Compute<T> scale, int64_t groups) {
  using C = Compute<T>;
  for (int64_t i = first_element(); i < groups; i += element_stride()) {
    const Offsets offsets = compute_offsets(layout, i);
    C sums[V], added[V];
    load_group<V>(to + offsets.to * V, sums);
    load_group<V>(from + offsets.from * V, added);
#pragma unroll
    for (int v = 0; v < V; ++v) sums[v] += scale * added[v];
    store_group<V>(to + offsets.to * V, sums);
  }
}

// Returns the layout of two arrays with the strides `to` and `from`. Merges adjacent dimensions that can be
// traversed with one stride in each array. The result has at least one dimension.
StridedLayout make_layout(const Shape& shape, const Shape& to, const Shape& from) {
  StridedLayout layout;
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
  if (layout.rank == 0) layout.size[layout.rank++] = 1;
  return layout;
}

// Returns true if the elements of each group of V elements are contiguous, and the address of the group is a
// multiple of the size of the group in bytes.
template <int V, class T>
bool has_aligned_groups(const StridedLayout& layout, const int64_t (&strides)[Shape::kMaxRank],
                        const T* data) {
  bool grouped = reinterpret_cast<uintptr_t>(data) % (V * sizeof(T)) == 0;
  for (int dim = 0; dim + 1 < layout.rank; ++dim) grouped = grouped && strides[dim] % V == 0;
  return grouped && strides[layout.rank - 1] == 1;
}

// Calls f(grouped, V). V is an integral_constant: kGroup if both arrays have aligned groups of kGroup
// elements, otherwise 1. `grouped` is `layout` with sizes and strides in groups of V elements.
template <int kGroup, class To, class From, class F>
void call_with_group_size(StridedLayout layout, const To* to, const From* from, F&& f) {
  const int last = layout.rank - 1;
  if constexpr (kGroup > 1)
    if (layout.size[last] % kGroup == 0 && has_aligned_groups<kGroup>(layout, layout.to, to) &&
        has_aligned_groups<kGroup>(layout, layout.from, from)) {
      layout.size[last] /= kGroup;
      for (int dim = 0; dim < last; ++dim) {
        layout.to[dim] /= kGroup;
        layout.from[dim] /= kGroup;
      }
      return f(layout, std::integral_constant<int, kGroup>{});
    }
  f(layout, std::integral_constant<int, 1>{});
}

// True if the kernels for arrays of type T process groups of several elements. For other types, a group has
// one element, which saves compile time.
template <class T>
constexpr bool kUsesGroups = std::is_same_v<T, float> || std::is_same_v<T, BFloat16>;
// Number of elements that a kernel for arrays of the types To and From processes as one group, if the arrays
// are aligned. If both types use groups, a group of the larger type has 16 bytes. Otherwise a group has one
// element.
template <class To, class From = To>
constexpr int kGroupSize = kUsesGroups<To>&& kUsesGroups<From> ? 16 / std::max(sizeof(To), sizeof(From)) : 1;

}  // namespace

void fill_zero(Backend, void* data, int64_t bytes) {
  fill_zero(data, bytes);
}

void copy_elements(Backend, const Tensor& to, const Tensor& from) {
  if (to.dtype() == from.dtype() && to.is_contiguous() && from.is_contiguous()) {
    copy_bytes(to.raw_data(), to.device(), from.raw_data(), from.device(), to.bytes());
    return;
  }
  const StridedLayout layout = make_layout(to.shape(), to.strides(), from.strides());
  visit_dtype(to.dtype(), [&](auto to_tag) {
    visit_dtype(from.dtype(), [&](auto from_tag) {
      using To = decltype(to_tag);
      using From = decltype(from_tag);
      call_with_group_size<kGroupSize<To, From>>(
          layout, to.data<To>(), from.data<From>(), [&](const StridedLayout& grouped, auto group) {
            const int64_t groups = to.numel() / group();
            launch(copy_kernel<To, From, group()>, make_elementwise_launch(groups), grouped, to.data<To>(),
                   from.data<From>(), groups);
          });
    });
  });
}

void fill_elements(Backend, const Tensor& to, double value) {
  const StridedLayout layout = make_layout(to.shape(), to.strides(), to.strides());
  visit_dtype(to.dtype(), [&](auto tag) {
    using T = decltype(tag);
    call_with_group_size<kGroupSize<T>>(layout, to.data<T>(), to.data<T>(),
                                        [&](const StridedLayout& grouped, auto group) {
                                          const int64_t groups = to.numel() / group();
                                          launch(fill_kernel<T, group()>, make_elementwise_launch(groups),
                                                 grouped, to.data<T>(), value, groups);
                                        });
  });
}

void add_elements(Backend, const Tensor& to, const Tensor& from, double scale) {
  const StridedLayout layout = make_layout(to.shape(), to.strides(), from.strides());
  visit_floating_dtype("add_scaled", to.dtype(), [&](auto tag) {
    using T = decltype(tag);
    call_with_group_size<kGroupSize<T>>(layout, to.data<T>(), from.data<T>(),
                                        [&](const StridedLayout& grouped, auto group) {
                                          const int64_t groups = to.numel() / group();
                                          launch(add_kernel<T, group()>, make_elementwise_launch(groups),
                                                 grouped, to.data<T>(), from.data<T>(), scale, groups);
                                        });
  });
}

}  // namespace tapeformer::cuda
