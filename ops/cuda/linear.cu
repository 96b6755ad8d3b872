#include "ops/kernels/linear.h"

#include <optional>
#include <type_traits>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/fused_gemm.h"
#include "ops/cuda/warp_row.h"
#include "ops/kernels/activation_functions.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/rounded_weights.h"

namespace tapeformer::cuda {
namespace {

// The kernels that run before and after the cuBLAS products process arrays of shape (rows, out) with thread
// blocks of 32 x 8 threads. Each thread processes V adjacent columns, beginning with first_column(), of the
// rows first_row(), first_row() + row_stride(), and so on.
template <int V>
__device__ int64_t first_column() {
  return (int64_t{blockIdx.x} * kWarpSize + threadIdx.x) * V;
}
__device__ int64_t first_row() {
  return int64_t{blockIdx.y} * kRowsPerBlock + threadIdx.y;
}
__device__ int64_t row_stride() {
  return int64_t{gridDim.y} * kRowsPerBlock;
}

template <Activation activation>
inline constexpr bool kKeepsInput = needs_preactivation(activation);

template <class Y>
struct EpilogueArrays {
  int64_t rows, out;
  const Compute<Y>* bias;
  DropoutMultipliers<Compute<Y>> dropout;
  Y *preactivation, *y;
};

// Adds the bias to the product x wᵀ, applies the activation and dropout, and writes the result to `y`. If
// needs_preactivation(activation) is true, epilogue_kernel reads the product from `preactivation` and
// replaces the product by x wᵀ + bias. For other activations, epilogue_kernel reads the product from `y`.
template <class Y, int V, Activation activation>
__global__ void epilogue_kernel(EpilogueArrays<Y> f) {
  using T = Compute<Y>;
  const int64_t column = first_column<V>();
  if (column >= f.out) return;
  T bias[V] = {};
  if (f.bias) load_group<V>(f.bias + column, bias);
  for (int64_t row = first_row(); row < f.rows; row += row_stride()) {
    const int64_t index = row * f.out + column;
    T values[V], multipliers[V];
    load_group<V>((kKeepsInput<activation> ? f.preactivation : f.y) + index, values);
#pragma unroll
    for (int v = 0; v < V; ++v) values[v] += bias[v];
    if constexpr (kKeepsInput<activation>)
      if (f.bias) store_group<V>(f.preactivation + index, values);
    f.dropout.template fill_multipliers<V>(index, multipliers);
#pragma unroll
    for (int v = 0; v < V; ++v)
      values[v] = ActivationFunction<activation>::template value<DeviceMath>(values[v]) * multipliers[v];
    store_group<V>(f.y + index, values);
  }
}

template <class Y, class Operand>
struct BackwardArrays {
  using T = Compute<Y>;
  int64_t rows, out;
  const Y *g, *y, *preactivation;
  DropoutMultipliers<T> dropout;
  Operand* gz;         // (rows, out); null if only `sums` is computed
  ColumnSums<T> sums;  // gradient of the bias; not computed if sums.partial_sums is null
};

// Computes gz, the gradient with respect to x wᵀ + bias. Also computes the gradient of the bias, which is the
// sum of gz over the rows. If y is 0 after relu, either relu or dropout has set y to 0, so gz is 0.
template <class Y, class Operand, int V, Activation activation>
__global__ void backward_start_kernel(BackwardArrays<Y, Operand> s) {
  using T = Compute<Y>;
  __shared__ T group_values[kRowsPerBlock][kWarpSize * V];
  const int64_t column = first_column<V>();
  T sums[V] = {};
  if (column < s.out)
    for (int64_t row = first_row(); row < s.rows; row += row_stride()) {
      const int64_t index = row * s.out + column;
      T values[V], other[V];
      load_group<V>(s.g + index, values);
      if constexpr (activation == Activation::relu) {
        load_group<V>(s.y + index, other);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] = other[v] <= 0 ? T{0} : values[v] * s.dropout.scale;
      } else {
        s.dropout.template fill_multipliers<V>(index, other);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] *= other[v];
      }
      if constexpr (kKeepsInput<activation>) {
        load_group<V>(s.preactivation + index, other);
#pragma unroll
        for (int v = 0; v < V; ++v)
          values[v] *= ActivationFunction<activation>::template derivative<DeviceMath>(other[v], T{0});
      }
      if (s.gz) store_group<V>(s.gz + index, values);
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v] += values[v];
    }
  if (!s.sums.partial_sums) return;  // all threads of the block take the same branch
#pragma unroll
  for (int v = 0; v < V; ++v) group_values[threadIdx.y][v * kWarpSize + threadIdx.x] = sums[v];
  __syncthreads();
  if (threadIdx.y == 0 && column < s.out) {
#pragma unroll
    for (int v = 0; v < V; ++v)
      for (int group = 1; group < kRowsPerBlock; ++group)
        sums[v] += group_values[group][v * kWarpSize + threadIdx.x];
    store_group<V>(s.sums.partial_sums + int64_t{blockIdx.y} * s.out + column, sums);
  }
  const int64_t begin = int64_t{blockIdx.x} * kWarpSize * V, end = begin + kWarpSize * V;
  complete_column_sums(s.sums, int64_t{blockIdx.y}, int64_t{blockIdx.x}, begin, end < s.out ? end : s.out);
}

// Returns the bfloat16 copy of `array` in rounded_copies (ops/kernels/rounded_weights.h), or null if there is
// no copy.
const BFloat16* find_rounded_copy(const float* array) {
  if (!rounded_copies) return nullptr;
  const auto found = rounded_copies->find(array);
  return found == rounded_copies->end() ? nullptr : found->second;
}

// One or two arrays that are operands of cuBLAS products, converted to type `Operand` if necessary. Converted
// copies in rounded_copies are reused. The second array can be null.
template <class Operand, class T>
class Operands {
 public:
  Operands(const T* x, int64_t x_size, const T* y = nullptr, int64_t y_size = 0) {
    if constexpr (std::is_same_v<Operand, T>) {
      first_ = x;
      second_ = y;
    } else {
      first_ = find_rounded_copy(x);
      second_ = y ? find_rounded_copy(y) : nullptr;
      constexpr int64_t kAlignment = 8;  // in elements; 16 bytes of bfloat16
      const bool rounds_x = !first_, rounds_y = y && !second_;
      const int64_t y_offset = rounds_x ? (x_size + kAlignment - 1) / kAlignment * kAlignment : 0;
      if (!rounds_x && !rounds_y) return;
      rounded_.emplace(y_offset + (rounds_y ? y_size : 0));
      RoundingTask arrays[2];
      int64_t count = 0;
      if (rounds_x) {
        first_ = rounded_->data();
        arrays[count++] = {x, rounded_->data(), x_size};
      }
      if (rounds_y) {
        second_ = rounded_->data() + y_offset;
        arrays[count++] = {y, rounded_->data() + y_offset, y_size};
      }
      round_arrays(Backend{}, arrays, count);
    }
  }
  const Operand* first() const { return first_; }
  const Operand* second() const { return second_; }

 private:
  std::optional<Scratch<Operand>> rounded_;
  const Operand *first_ = nullptr, *second_ = nullptr;
};

// Calls f(V, activation) with compile-time constants. V is the number of columns per thread: the size of a
// Pack if use_packs is true and T is float, otherwise 1.
template <class T, class F>
void with_group_and_activation(bool use_packs, Activation activation, F&& f) {
  const auto with_group = [&](auto group) {
    visit_activation(activation, [&](auto constant) { f(group, constant); });
  };
  if constexpr (sizeof(T) == sizeof(float))  // double uses V = 1, because only tests use double
    if (use_packs) return with_group(std::integral_constant<int, Pack<T>::kSize>{});
  with_group(std::integral_constant<int, 1>{});
}

LaunchConfig over_columns(int64_t columns, int64_t partial_sum_count,
                          SourceLocation where = SourceLocation::current()) {
  return {dim3(static_cast<unsigned>((columns + kWarpSize - 1) / kWarpSize),
               static_cast<unsigned>(partial_sum_count)),
          dim3(kWarpSize, kRowsPerBlock), 0, where};
}

// Returns the number of partial sums per column, which is the number of thread blocks along y. The result is
// at least 1, so that the kernel also runs for 0 rows and sets the sums to 0.
int64_t count_partial_sums(int64_t rows) {
  return std::clamp<int64_t>((rows + kRowsPerBlock - 1) / kRowsPerBlock, 1, kMaxPartialSums);
}

// Calls f(Operand{}), where Operand is the element type of the operands of the products: BFloat16 if X is
// float and the precision of the device is bfloat16, otherwise X.
template <class X, class F>
void with_operand_type(F&& f) {
  if constexpr (std::is_same_v<X, float>)
    if (get_context().precision == Precision::bfloat16) return f(BFloat16{});
  f(X{});
}

// Computes y = x wᵀ. Returns true if the epilogue of the product has added the bias. If the epilogue has
// added the bias and `relu` is true, the epilogue has also applied relu. The gelu epilogue of cuBLASLt is not
// used, because it computes the tanh approximation.
//
// The relu epilogue of cuBLASLt can replace NaN with 0. Training therefore checks the weights and gradients
// for NaN, and does not rely on NaN in y.
template <class Operand, class X, class Y>
bool compute_forward_product(const LinearShape& shape, const X* x, const Compute<X>* w,
                             const Compute<X>* bias, bool relu, Y* y) {
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  // cuBLASLt requires a bias in the type of the result.
  constexpr bool kRoundsBias = std::is_same_v<Y, BFloat16>;
  const Operands<Operand, X> inputs(x, rows * in);
  const Operands<Operand, Compute<X>> weights(w, out * in, kRoundsBias ? bias : nullptr, out);
  const Gemm<Y, Operand> product{.transpose_b = true,
                                 .m = rows,
                                 .n = out,
                                 .k = in,
                                 .a = inputs.first(),
                                 .lda = in,
                                 .b = weights.first(),
                                 .ldb = in,
                                 .c = y,
                                 .ldc = out};
  if constexpr (kRoundsBias) {
    if (bias && try_gemm_with_bias(product, weights.second(), relu)) return true;
  } else if constexpr (std::is_same_v<Y, float>) {
    if (bias && try_gemm_with_bias(product, bias, relu)) return true;
  }
  gemm(Backend{}, product);
  return false;
}

template <class Operand, class X>
void compute_input_gradient(const LinearShape& shape, const Operand* gz, const Compute<X>* w, X* gx) {
  const int64_t in = shape.in, out = shape.out;
  const Operands<Operand, Compute<X>> weights(w, out * in);
  gemm(Backend{}, Gemm<X, Operand>{.m = shape.rows,
                                   .n = in,
                                   .k = out,
                                   .a = gz,
                                   .lda = out,
                                   .b = weights.first(),
                                   .ldb = in,
                                   .c = gx,
                                   .ldc = in});
}

// Computes gw = gzᵀ x. Returns true if the epilogue of the product has also computed gbias, the sum of the
// rows of gz. gbias can be null.
template <class Operand, class X, class T = Compute<X>>
bool compute_weight_gradient(const LinearShape& shape, const Operand* gz, const X* x, T* gw, T* gbias) {
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  const Operands<Operand, X> inputs(x, rows * in);
  const Gemm<T, Operand> product{.transpose_a = true,
                                 .m = out,
                                 .n = in,
                                 .k = rows,
                                 .a = gz,
                                 .lda = out,
                                 .b = inputs.first(),
                                 .ldb = in,
                                 .c = gw,
                                 .ldc = in};
  // With the epilogue that computes gbias, cuBLASLt does not divide the sum over k among thread blocks, so
  // the product is slow if gw has few tiles and k is large. For such products, a separate kernel computes
  // gbias.
  constexpr int64_t kTile = 128, kManyTiles = 64, kMaxFewRows = 1024;
  const int64_t tiles = ((out + kTile - 1) / kTile) * ((in + kTile - 1) / kTile);
  if constexpr (std::is_same_v<T, float>)
    if (gbias && (tiles >= kManyTiles || rows <= kMaxFewRows) && try_gemm_with_bias_gradient(product, gbias))
      return true;
  gemm(Backend{}, product);
  return false;
}

template <class Y>
void launch_epilogue(const LinearShape& shape, const Compute<Y>* bias, Activation activation,
                     const DropoutMask& dropout, Y* preactivation, Y* y) {
  using T = Compute<Y>;
  const int64_t rows = shape.rows, out = shape.out;
  if (!bias && activation == Activation::none && !dropout.is_active()) return;
  const bool use_packs = out % Pack<T>::kSize == 0 && are_aligned_to_packs(bias, preactivation, y);
  const EpilogueArrays<Y> f{rows, out, bias, DropoutMultipliers<T>(dropout), preactivation, y};
  with_group_and_activation<T>(use_packs, activation, [&](auto group, auto function) {
    launch(epilogue_kernel<Y, group(), function()>, over_columns(out / group(), count_partial_sums(rows)), f);
  });
}

}  // namespace

template <class X, class Y>
void linear_forward(Backend, const LinearShape& shape, const X* x, const Compute<X>* w,
                    const Compute<X>* bias, Activation activation, const DropoutMask& dropout,
                    Y* preactivation, Y* y) {
  with_operand_type<X>([&](auto tag) {
    const bool keeps_input = needs_preactivation(activation);
    if (compute_forward_product<decltype(tag)>(shape, x, w, bias, activation == Activation::relu,
                                               keeps_input ? preactivation : y))
      launch_epilogue<Y>(shape, nullptr, keeps_input ? activation : Activation::none, dropout, preactivation,
                         y);
    else
      launch_epilogue(shape, bias, activation, dropout, preactivation, y);
  });
}

template <class X, class Y>
void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const Compute<X>* w,
                     Activation activation, const DropoutMask& dropout, const Y* preactivation, const Y* y,
                     X* gx, Compute<X>* gw, Compute<X>* gbias) {
  using T = Compute<X>;
  const int64_t rows = shape.rows, out = shape.out, partial_sum_count = count_partial_sums(rows);
  with_operand_type<X>([&](auto tag) {
    using Operand = decltype(tag);
    constexpr bool kRoundsGradient = !std::is_same_v<Operand, Y>;
    // gz is the gradient of x wᵀ + bias. Without activation, dropout and rounding, gz is equal to g.
    const bool use_g = activation == Activation::none && !dropout.is_active() && !kRoundsGradient;
    const Scratch<Operand> buffer(use_g ? 0 : rows * out);
    const auto launch_backward_start = [&](Operand* gz) {
      const bool use_packs = out % Pack<T>::kSize == 0 && are_aligned_to_packs(g, preactivation, y);
      with_group_and_activation<T>(use_packs, activation, [&](auto group, auto function) {
        const LaunchConfig columns = over_columns(out / group(), partial_sum_count);
        const ColumnSumsWorkspace<T> memory(partial_sum_count, out, out, columns.grid.x, gbias);
        const BackwardArrays<Y, Operand> s{
            rows, out, g, y, preactivation, DropoutMultipliers<T>(dropout), gz, memory.sums()};
        launch(backward_start_kernel<Y, Operand, group(), function()>, columns, s);
      });
    };
    if (!use_g) launch_backward_start(buffer.data());
    const Operand* gz = buffer.data();
    if constexpr (!kRoundsGradient)
      if (use_g) gz = g;
    if (gx) compute_input_gradient(shape, gz, w, gx);
    const bool is_bias_gradient_done =
        gw && compute_weight_gradient<Operand>(shape, gz, x, gw, use_g ? gbias : nullptr);
    if (use_g && gbias && !is_bias_gradient_done) launch_backward_start(nullptr);
  });
}

template <class X, class Y>
struct LinearKernels {
  inline static const FunctionInstances all{&linear_forward<X, Y>, &linear_backward<X, Y>};
};
TAPEFORMER_FLOAT(template struct LinearKernels<float, float>;
                 template struct LinearKernels<BFloat16, BFloat16>;
                 template struct LinearKernels<BFloat16, float>;)
TAPEFORMER_DOUBLE(template struct LinearKernels<double, double>;)

}  // namespace tapeformer::cuda
