#include "ops/kernels/short_conv.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/column_sums.h"

namespace tapeformer::cuda {
namespace {

// Numbers of tokens per thread. Threads of a warp process adjacent channels of the same tokens.
constexpr int64_t kForwardTokens = 8, kBackwardTokens = 32;
constexpr int kTokenGroups = 8;  // number of warps of a block in the backward pass

template <class T>
__device__ Compute<T> add_conv_taps(const ShortConvInputs<T>& in, int64_t example, int64_t token,
                                    int64_t channel) {
  const TokenRange range = in.find_inputs(example, token);
  const Compute<T>* const weight = in.weight + channel * in.kernel + in.count_earlier() - token;
  Compute<T> sum = 0;
  for (int64_t p = range.begin; p < range.end; ++p)
    sum += weight[p] * convert_element<Compute<T>>(in.row(example, p)[channel]);
  return sum;
}

template <class T>
__global__ void short_conv_forward_kernel(ShortConvInputs<T> in, T* y, int64_t n) {
  const int64_t blocks = (in.length + kForwardTokens - 1) / kForwardTokens;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t c = i % in.channels, block = i / in.channels, b = block / blocks;
    const int64_t begin = block % blocks * kForwardTokens, valid = in.get_valid_tokens(b);
    for (int64_t t = begin; t < begin + kForwardTokens && t < in.length; ++t)
      y[(b * in.length + t) * in.channels + c] =
          t < valid ? convert_element<T>(compute_gate<DeviceMath>(in.activation, add_conv_taps(in, b, t, c)))
                    : T{};
  }
}

template <class T>
struct ShortConvGradients {
  AttentionRows<const T> g;
  T *gx, *ghistory;                    // can be null
  ColumnSums<Compute<T>> weight_sums;  // not computed if partial_sums is null
};

// Computes the gradients of the inputs of one channel at kBackwardTokens positions, and adds the gradient of
// the weight to gweight. kKernel is the number of taps, or 0 if it is not known at compile time.
template <int kKernel, class T>
__device__ void backpropagate_tokens(const ShortConvInputs<T>& in, const ShortConvGradients<T>& out,
                                     int64_t example, int64_t first_token, int64_t channel,
                                     Compute<T>* gweight) {
  using C = Compute<T>;
  constexpr int kTaps = kKernel ? kKernel : static_cast<int>(kMaxShortConvKernel);
  const int kernel = kKernel ? kKernel : static_cast<int>(in.kernel);
  const int64_t valid = in.get_valid_tokens(example), earlier = in.count_earlier();
  const int64_t begin = first_token == 0 && out.ghistory ? 1 - in.kernel : first_token;
  const int64_t end = first_token + kBackwardTokens < in.length ? first_token + kBackwardTokens : in.length;
  C recent[kTaps] = {};  // gradients of the sums of the latest tokens; the last element is of token t
  for (int64_t t = begin - in.lookahead; t < end + earlier; ++t) {
    C gsum = 0;
    if (t >= 0 && t < valid) {
      gsum = convert_element<C>(out.g.row(example, t, 0)[channel]);
      if (in.activation != GateActivation::none)
        gsum *= compute_gate_and_derivative<DeviceMath>(in.activation, add_conv_taps(in, example, t, channel))
                    .derivative;
      if (out.weight_sums.partial_sums && t >= begin && t < end) {
        const TokenRange range = in.find_inputs(example, t);
        for (int j = 0; j < kernel; ++j)
          if (const int64_t p = t - earlier + j; p >= range.begin && p < range.end)
            gweight[j] += gsum * convert_element<C>(in.row(example, p)[channel]);
      }
    }
    for (int i = 0; i + 1 < kernel; ++i) recent[i] = recent[i + 1];
    recent[kernel - 1] = gsum;
    const int64_t position = t - earlier;
    if (position < begin || (position < 0 ? !out.ghistory : !out.gx)) continue;
    const TokenRange readers = in.find_readers(example, position);
    C gx = 0;
    for (int j = 0; j < kernel; ++j)  // tap j of token t - j reads the position
      if (t - j >= readers.begin && t - j < readers.end)
        gx += in.weight[channel * kernel + j] * recent[kernel - 1 - j];
    if (position < 0)
      out.ghistory[((example + 1) * (kernel - 1) + position) * in.channels + channel] =
          convert_element<T>(gx);
    else
      out.gx[(example * in.length + position) * in.channels + channel] = convert_element<T>(gx);
  }
}

// blockIdx.x selects kWarpSize channels, and blockIdx.y and threadIdx.y select tokens.
template <int kKernel, class T>
__global__ void short_conv_backward_kernel(ShortConvInputs<T> in, ShortConvGradients<T> out,
                                           int64_t example_blocks) {
  using C = Compute<T>;
  constexpr int kTaps = kKernel ? kKernel : static_cast<int>(kMaxShortConvKernel);
  const int kernel = kKernel ? kKernel : static_cast<int>(in.kernel);
  const int64_t first_channel = int64_t{blockIdx.x} * kWarpSize, channel = first_channel + threadIdx.x;
  C gweight[kTaps] = {};
  if (channel < in.channels)
    for (int64_t block = int64_t{blockIdx.y} * kTokenGroups + threadIdx.y; block < in.batch * example_blocks;
         block += int64_t{gridDim.y} * kTokenGroups)
      backpropagate_tokens<kKernel>(in, out, block / example_blocks, block % example_blocks * kBackwardTokens,
                                    channel, gweight);
  if (!out.weight_sums.partial_sums) return;  // all threads of the block take the same branch
  __shared__ C group_values[kTokenGroups][kWarpSize];
  for (int j = 0; j < kernel; ++j) {
    group_values[threadIdx.y][threadIdx.x] = gweight[j];
    __syncthreads();
    if (threadIdx.y == 0 && channel < in.channels) {
      C sum = 0;
      for (int group = 0; group < kTokenGroups; ++group) sum += group_values[group][threadIdx.x];
      out.weight_sums
          .partial_sums[int64_t{blockIdx.y} * out.weight_sums.column_count + channel * kernel + j] = sum;
    }
    __syncthreads();
  }
  const int64_t end_channel =
      first_channel + kWarpSize < in.channels ? first_channel + kWarpSize : in.channels;
  complete_column_sums(out.weight_sums, int64_t{blockIdx.y}, int64_t{blockIdx.x}, first_channel * kernel,
                       end_channel * kernel);
}

template <class T>
__global__ void short_conv_step_kernel(ShortConvShape s, AttentionRows<const T> x, const T* weight,
                                       T* history, AttentionRows<T> out, int64_t n) {
  const int64_t rows = s.kernel - 1;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t c = i % s.channels, b = i / s.channels;
    const auto past = [&](int64_t j) -> T& { return history[(b * rows + j) * s.channels + c]; };
    const T* const w = weight + c * s.kernel;
    T sum = 0, next = x.row(b, 0, 0)[c];
    const T current = next;
    for (int64_t j = 0; j < rows; ++j) sum += w[j] * past(j);
    for (int64_t j = rows - 1; j >= 0; --j) {
      const T moved = past(j);
      past(j) = next;
      next = moved;
    }
    out.row(b, 0, 0)[c] = compute_gate<DeviceMath>(s.activation, sum + w[rows] * current);
  }
}

}  // namespace

template <class T>
void short_conv_forward(Backend, const ShortConvInputs<T>& in, T* y) {
  const int64_t blocks = (in.length + kForwardTokens - 1) / kForwardTokens,
                n = in.batch * blocks * in.channels;
  launch(short_conv_forward_kernel<T>, make_elementwise_launch(n), in, y, n);
}

template <class T>
void short_conv_backward(Backend, const ShortConvInputs<T>& in, AttentionRows<const T> g, T* gx,
                         Compute<T>* gweight, T* ghistory) {
  const int64_t example_blocks = std::max<int64_t>((in.length + kBackwardTokens - 1) / kBackwardTokens, 1);
  // At least 1, so that the kernel also runs for 0 tokens and sets gweight to 0
  const int64_t partial_sum_count =
      std::clamp<int64_t>((in.batch * example_blocks + kTokenGroups - 1) / kTokenGroups, 1, kMaxPartialSums);
  const int64_t strips = (in.channels + kWarpSize - 1) / kWarpSize, columns = in.channels * in.kernel;
  const ColumnSumsWorkspace<Compute<T>> memory(partial_sum_count, columns, columns, strips, gweight);
  const ShortConvGradients<T> out{g, gx, ghistory, memory.sums()};
  const LaunchConfig shape(dim3(static_cast<unsigned>(strips), static_cast<unsigned>(partial_sum_count)),
                           dim3(kWarpSize, kTokenGroups));
  if constexpr (!std::is_same_v<T, double>)
    if (in.kernel == 4) return launch(short_conv_backward_kernel<4, T>, shape, in, out, example_blocks);
  launch(short_conv_backward_kernel<0, T>, shape, in, out, example_blocks);
}

template <class T>
void short_conv_step(Backend, const ShortConvShape& s, AttentionRows<const T> x, const T* weight, T* history,
                     AttentionRows<T> out) {
  const int64_t n = s.batch * s.channels;
  launch(short_conv_step_kernel<T>, make_elementwise_launch(n), s, x, weight, history, out, n);
}

template <class T>
struct ShortConvKernels {
  inline static const FunctionInstances all{&short_conv_forward<T>, &short_conv_backward<T>};
};
template struct ShortConvKernels<float>;
template struct ShortConvKernels<double>;
template struct ShortConvKernels<BFloat16>;
template <class T>
struct ShortConvStepKernels {
  inline static const FunctionInstances all{&short_conv_step<T>};
};
template struct ShortConvStepKernels<float>;
template struct ShortConvStepKernels<double>;

}  // namespace tapeformer::cuda
