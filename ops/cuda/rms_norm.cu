#include "ops/kernels/rms_norm.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

template <class T>
struct RmsNormArrays {
  NormRows<const T> x;
  const Compute<T>* weight;
  NormRows<const T> gate;

  __device__ Compute<T> get_weight(int64_t i) const { return weight ? weight[i] : Compute<T>{1}; }
};

// Returns the inverse norm of a row, given the part of Σ x² that each lane of the warp has computed.
template <class T>
__device__ T complete_inverse_norm(const RmsNormShape& s, T squares) {
  return 1 / std::sqrt(static_cast<T>(s.factor) * warp_reduce<Plus>(squares) + static_cast<T>(s.eps));
}

// Each warp processes one row at a time, in this kernel and in rms_norm_backward_kernel().
template <class T, class O>
__global__ void rms_norm_forward_kernel(RmsNormShape s, RmsNormArrays<T> a, NormRows<O> y) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t row = first_warp_row(); row < s.rows; row += warp_row_stride()) {
    const T* const x = a.x.row(row);
    const T* const gate = a.gate.data ? a.gate.row(row) : nullptr;
    O* const out = y.row(row);
    C squares = 0;
    for (int64_t i = lane; i < s.dim; i += kWarpSize) {
      const C v = convert_element<C>(x[i]);
      squares += v * v;
    }
    const C multiplier = complete_inverse_norm(s, squares) * static_cast<C>(s.scale);
    for (int64_t i = lane; i < s.dim; i += kWarpSize) {
      C v = convert_element<C>(x[i]) * multiplier * a.get_weight(i);
      if (gate) v *= compute_gate<DeviceMath>(s.activation, convert_element<C>(gate[i]));
      out[i] = convert_element<O>(v);
    }
  }
}

template <class T>
struct RmsNormGradients {
  NormRows<const T> g;
  T *gx, *ggate;              // can be null
  Compute<T>* inverse_norms;  // (rows,), written for rms_norm_weight_kernel(), or null
};

template <class T>
__global__ void rms_norm_backward_kernel(RmsNormShape s, RmsNormArrays<T> a, RmsNormGradients<T> out) {
  using C = Compute<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const C scale = static_cast<C>(s.scale);
  for (int64_t row = first_warp_row(); row < s.rows; row += warp_row_stride()) {
    const T *const g = out.g.row(row), *const x = a.x.row(row);
    const T* const gate = a.gate.data ? a.gate.row(row) : nullptr;
    const auto gate_at = [&](int64_t i) {
      return gate ? compute_gate_and_derivative<DeviceMath>(s.activation, convert_element<C>(gate[i]))
                  : GateAndDerivative<C>{1, 0};
    };
    C squares = 0, dot = 0;
    for (int64_t i = lane; i < s.dim; i += kWarpSize) {
      const C v = convert_element<C>(x[i]);
      squares += v * v;
      dot += v * (convert_element<C>(g[i]) * scale * a.get_weight(i) * gate_at(i).value);
    }
    const C inverse = complete_inverse_norm(s, squares);
    const C mean = static_cast<C>(s.factor) * warp_reduce<Plus>(dot) * inverse * inverse;
    if (out.inverse_norms && lane == 0) out.inverse_norms[row] = inverse;
    for (int64_t i = lane; i < s.dim; i += kWarpSize) {
      const C v = convert_element<C>(x[i]), gw = convert_element<C>(g[i]) * scale * a.get_weight(i);
      const auto [value, derivative] = gate_at(i);
      if (out.gx) out.gx[row * s.dim + i] = convert_element<T>(inverse * (gw * value - mean * v));
      if (out.ggate) out.ggate[row * s.dim + i] = convert_element<T>(gw * v * inverse * derivative);
    }
  }
}

// Computes the gradient of the weight. blockIdx.x selects kWarpSize columns, and blockIdx.y selects rows.
template <class T>
__global__ void rms_norm_weight_kernel(RmsNormShape s, RmsNormArrays<T> a, RmsNormGradients<T> in,
                                       ColumnSums<Compute<T>> sums) {
  using C = Compute<T>;
  __shared__ C group_sums[kRowsPerBlock][kWarpSize];
  const int64_t begin = int64_t{blockIdx.x} * kWarpSize, column = begin + threadIdx.x;
  C sum = 0;
  if (column < s.dim)
    for (int64_t row = int64_t{blockIdx.y} * kRowsPerBlock + threadIdx.y; row < s.rows;
         row += int64_t{gridDim.y} * kRowsPerBlock) {
      C v = convert_element<C>(in.g.row(row)[column]) * convert_element<C>(a.x.row(row)[column]);
      if (a.gate.data)
        v *= compute_gate<DeviceMath>(s.activation, convert_element<C>(a.gate.row(row)[column]));
      sum += v * in.inverse_norms[row];
    }
  group_sums[threadIdx.y][threadIdx.x] = sum * static_cast<C>(s.scale);
  __syncthreads();
  if (threadIdx.y == 0 && column < s.dim) {
    sum = 0;
    for (int group = 0; group < kRowsPerBlock; ++group) sum += group_sums[group][threadIdx.x];
    sums.partial_sums[int64_t{blockIdx.y} * s.dim + column] = sum;
  }
  complete_column_sums(sums, int64_t{blockIdx.y}, int64_t{blockIdx.x}, begin,
                       begin + kWarpSize < s.dim ? begin + kWarpSize : s.dim);
}

}  // namespace

template <class T, class O>
void rms_norm_forward(Backend, const RmsNormShape& s, NormRows<const T> x, const Compute<T>* weight,
                      NormRows<const T> gate, NormRows<O> y) {
  launch(rms_norm_forward_kernel<T, O>, make_warp_row_launch(s.rows), s, RmsNormArrays<T>{x, weight, gate},
         y);
}

template <class T>
void rms_norm_backward(Backend, const RmsNormShape& s, NormRows<const T> g, NormRows<const T> x,
                       const Compute<T>* weight, NormRows<const T> gate, T* gx, Compute<T>* gweight,
                       T* ggate) {
  const Scratch<Compute<T>> inverse_norms(gweight ? s.rows : 0);
  const RmsNormArrays<T> arrays{x, weight, gate};
  const RmsNormGradients<T> gradients{g, gx, ggate, inverse_norms.data()};
  launch(rms_norm_backward_kernel<T>, make_warp_row_launch(s.rows), s, arrays, gradients);
  if (!gweight) return;
  // At least 1, so that the kernel also runs for 0 rows and sets gweight to 0
  const int64_t partial_sum_count =
      std::clamp<int64_t>((s.rows + kRowsPerBlock - 1) / kRowsPerBlock, 1, kMaxPartialSums);
  const int64_t strips = (s.dim + kWarpSize - 1) / kWarpSize;
  const ColumnSumsWorkspace<Compute<T>> memory(partial_sum_count, s.dim, s.dim, strips, gweight);
  launch(rms_norm_weight_kernel<T>,
         LaunchConfig(dim3(static_cast<unsigned>(strips), static_cast<unsigned>(partial_sum_count)),
                      dim3(kWarpSize, kRowsPerBlock)),
         s, arrays, gradients, memory.sums());
}

template <class T>
struct RmsNormKernels {
  inline static const FunctionInstances all{&rms_norm_forward<T, T>, &rms_norm_backward<T>};
};
template struct RmsNormKernels<float>;
template struct RmsNormKernels<double>;
template struct RmsNormKernels<BFloat16>;
template <class T>
struct RoundingRmsNormKernels {
  inline static const FunctionInstances all{&rms_norm_forward<T, BFloat16>};
};
template struct RoundingRmsNormKernels<float>;

}  // namespace tapeformer::cuda
