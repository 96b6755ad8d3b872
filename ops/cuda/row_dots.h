// Dot products of the rows of two tensors, for the gradients of attention.
#pragma once

#include <bit>
#include <type_traits>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

// Computes dots (batch, heads, length), the dot products of the rows of a and b (batch, length, heads, dim).
// Each warp computes one dot product at a time.
template <class S, class T = Compute<S>>
__global__ void row_dots_kernel(AttentionRows<const S> a, AttentionRows<const S> b, int64_t length,
                                int64_t heads, int64_t dim, int64_t count, T* dots) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t i = first_element() / kWarpSize; i < count; i += element_stride() / kWarpSize) {
    const int64_t head = i % heads, position = i / heads % length, example = i / heads / length;
    const S* const x = a.row(example, position, head);
    const S* const y = b.row(example, position, head);
    T sum = 0;
    for (int64_t d = lane; d < dim; d += kWarpSize)
      sum += convert_element<T>(x[d]) * convert_element<T>(y[d]);
    sum = warp_reduce<Plus>(sum);
    if (lane == 0) dots[(example * heads + head) * length + position] = sum;
  }
}

// The version of row_dots_kernel for bfloat16 rows that are aligned to 16 bytes. Each lane loads one Pack of
// a row of `a` and one Pack of the same row of `b`. `lanes_per_row`, the number of Packs in a row, must be a
// power of two and at most kWarpSize. A warp computes kWarpSize / lanes_per_row dot products at a time.
template <class S>
__global__ void packed_row_dots_kernel(AttentionRows<const S> a, AttentionRows<const S> b, unsigned length,
                                       unsigned heads, unsigned lanes_per_row, unsigned count, float* dots) {
  const unsigned lane = threadIdx.x % kWarpSize, lane_of_row = lane % lanes_per_row,
                 rows_per_warp = kWarpSize / lanes_per_row, warps_per_block = blockDim.x / kWarpSize;
  const unsigned warp = blockIdx.x * warps_per_block + threadIdx.x / kWarpSize;
  for (unsigned first = warp * rows_per_warp; first < count;
       first += gridDim.x * warps_per_block * rows_per_warp) {
    const unsigned i = first + lane / lanes_per_row, head = i % heads, position = i / heads % length,
                   example = i / heads / length;
    float sum = 0;
    if (i < count) {
      const auto load = [&](const AttentionRows<const S>& rows) {
        const S* const row = rows.row(example, position, head);
        return Pack<uint32_t>::load(reinterpret_cast<const uint32_t*>(row) +
                                    lane_of_row * Pack<uint32_t>::kSize);
      };
      const Pack<uint32_t> x = load(a), y = load(b);
#pragma unroll
      for (int p = 0; p < Pack<uint32_t>::kSize; ++p)
        sum += unpack_first(x.values[p]) * unpack_first(y.values[p]) +
               unpack_second(x.values[p]) * unpack_second(y.values[p]);
    }
    for (unsigned bits = lanes_per_row / 2; bits > 0; bits /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(bits));
    if (i < count && lane_of_row == 0) dots[(int64_t{example} * heads + head) * length + position] = sum;
  }
}

// Computes the dot products of the rows of `a` and `b`, which have the shape (batch, length, heads, dim), and
// writes them to `dots`, which has the shape (batch, heads, length). Uses packed_row_dots_kernel if this
// kernel supports the rows of `a` and `b`, otherwise row_dots_kernel.
template <class S>
void compute_row_dots(AttentionRows<const S> a, AttentionRows<const S> b, int64_t batch, int64_t length,
                      int64_t heads, int64_t dim, Compute<S>* dots) {
  constexpr int64_t kMaxCount = int64_t{1} << 30;  // packed_row_dots_kernel uses 32-bit indices
  const int64_t count = batch * length * heads;
  if constexpr (std::is_same_v<S, BFloat16>) {
    const int64_t lanes = dim / Pack<S>::kSize;
    if (are_aligned_to_packs(a, dim) && are_aligned_to_packs(b, dim) && lanes <= kWarpSize &&
        std::has_single_bit(static_cast<uint64_t>(lanes)) && count <= kMaxCount)
      return launch(packed_row_dots_kernel<S>, make_elementwise_launch(count * lanes), a, b,
                    static_cast<unsigned>(length), static_cast<unsigned>(heads), static_cast<unsigned>(lanes),
                    static_cast<unsigned>(count), dots);
  }
  launch(row_dots_kernel<S>, make_elementwise_launch(count * kWarpSize), a, b, length, heads, dim, count,
         dots);
}

}  // namespace tapeformer::cuda
