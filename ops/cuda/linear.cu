#include "ops/kernels/linear.h"

#include <type_traits>

#include "core/cuda/kernel.h"
#include "core/instances.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/fused_gemm.h"
#include "ops/cuda/warp_row.h"
#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cuda {
namespace {

// Products are cuBLAS calls. What goes before and after them are passes over (rows, out) by blocks of 32 x 8
// threads: a thread has V columns that lie together, of every (8 * gridDim.y)-th row.
template <int V>
__device__ int64_t column_of_thread() {
  return (int64_t{blockIdx.x} * kWarp + threadIdx.x) * V;
}
__device__ int64_t first_row() {
  return int64_t{blockIdx.y} * kRowsOfBlock + threadIdx.y;
}
__device__ int64_t row_stride() {
  return int64_t{gridDim.y} * kRowsOfBlock;
}

template <class Y>
struct Finish {
  int64_t rows, out;
  const Compute<Y>* bias;
  DropoutFactors<Compute<Y>> dropout;
  Y *pre, *y;
};

// Bias, activation and dropout. The product is in pre for gelu, else in y.
template <class Y, int V, Activation activation>
__global__ void finish_kernel(Finish<Y> f) {
  using T = Compute<Y>;
  const int64_t column = column_of_thread<V>();
  if (column >= f.out) return;
  T bias[V] = {};
  if (f.bias) load_group<V>(f.bias + column, bias);
  for (int64_t row = first_row(); row < f.rows; row += row_stride()) {
    const int64_t at = row * f.out + column;
    T values[V], factors[V];
    load_group<V>((activation == Activation::gelu ? f.pre : f.y) + at, values);
#pragma unroll
    for (int v = 0; v < V; ++v) values[v] += bias[v];
    if constexpr (activation == Activation::gelu)
      if (f.bias) store_group<V>(f.pre + at, values);
    f.dropout.template fill<V>(at, factors);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if constexpr (activation == Activation::gelu)
        values[v] = Gelu::value<DeviceMath>(values[v]);
      else if constexpr (activation == Activation::relu)
        values[v] = Relu::value<DeviceMath>(values[v]);
      values[v] *= factors[v];
    }
    store_group<V>(f.y + at, values);
  }
}

template <class Y, class Factor>
struct Start {
  using T = Compute<Y>;
  int64_t rows, out;
  const Y *g, *y, *pre;
  DropoutFactors<T> dropout;
  Factor* gz;  // null: equal to g
  T* partial;  // (gridDim.y, out) sums over rows for the gradient of the bias, or null
};

// Gradient with respect to x wᵀ + bias. For relu, y > 0 says both that the unit was on and that dropout kept
// it.
template <class Y, class Factor, int V, Activation activation>
__global__ void start_kernel(Start<Y, Factor> s) {
  using T = Compute<Y>;
  __shared__ T of_group[kRowsOfBlock][kWarp * V];
  const int64_t column = column_of_thread<V>();
  T sums[V] = {};
  if (column < s.out)
    for (int64_t row = first_row(); row < s.rows; row += row_stride()) {
      const int64_t at = row * s.out + column;
      T values[V], other[V];
      load_group<V>(s.g + at, values);
      if constexpr (activation == Activation::relu) {
        load_group<V>(s.y + at, other);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] = other[v] <= 0 ? T{0} : values[v] * s.dropout.scale;
      } else {
        s.dropout.template fill<V>(at, other);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] *= other[v];
      }
      if constexpr (activation == Activation::gelu) {
        load_group<V>(s.pre + at, other);
#pragma unroll
        for (int v = 0; v < V; ++v) values[v] *= Gelu::slope<DeviceMath>(other[v], T{0});
      }
      if (s.gz) store_group<V>(s.gz + at, values);
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v] += values[v];
    }
  if (!s.partial) return;  // the same for all threads
#pragma unroll
  for (int v = 0; v < V; ++v) of_group[threadIdx.y][threadIdx.x * V + v] = sums[v];
  __syncthreads();
  if (threadIdx.y != 0 || column >= s.out) return;
#pragma unroll
  for (int v = 0; v < V; ++v)
    for (int group = 1; group < kRowsOfBlock; ++group) sums[v] += of_group[group][threadIdx.x * V + v];
  store_group<V>(s.partial + int64_t{blockIdx.y} * s.out + column, sums);
}

template <int V>
__global__ void round_kernel(const float* x, BFloat16* y, int64_t groups) {
  for (int64_t i = first_element(); i < groups; i += element_stride()) {
    float values[V];
    load_group<V>(x + i * V, values);
    store_group<V>(y + i * V, values);
  }
}

// A factor of a product as it enters it: the matrix itself, or a copy of it rounded to bfloat16.
template <class Factor, class T>
class AsFactor {
 public:
  AsFactor(const T* x, int64_t n) : rounded_(kSame ? 0 : n), data_(nullptr) {
    if constexpr (kSame) {
      data_ = x;
    } else {
      data_ = rounded_.data();
      if (n % Pack<T>::kSize == 0 && aligned_to_packs(x))
        launch(round_kernel<Pack<T>::kSize>, over_elements(n / Pack<T>::kSize), x, rounded_.data(),
               n / Pack<T>::kSize);
      else
        launch(round_kernel<1>, over_elements(n), x, rounded_.data(), n);
    }
  }
  const Factor* data() const { return data_; }

 private:
  static constexpr bool kSame = std::is_same_v<Factor, T>;
  Scratch<Factor> rounded_;
  const Factor* data_;
};

// Calls f(V, activation) as constants.
template <class T, class F>
void with_constants(bool packs, Activation activation, F&& f) {
  const auto with_group = [&](auto group) {
    if (activation == Activation::relu)
      f(group, std::integral_constant<Activation, Activation::relu>{});
    else if (activation == Activation::gelu)
      f(group, std::integral_constant<Activation, Activation::gelu>{});
    else
      f(group, std::integral_constant<Activation, Activation::none>{});
  };
  if constexpr (sizeof(T) == sizeof(float))  // double takes single elements: see kUnrolled
    if (packs) return with_group(std::integral_constant<int, Pack<T>::kSize>{});
  with_group(std::integral_constant<int, 1>{});
}

Launch over_columns(int64_t columns, int64_t parts,
                    std::source_location where = std::source_location::current()) {
  return {dim3(static_cast<unsigned>((columns + kWarp - 1) / kWarp), static_cast<unsigned>(parts)),
          dim3(kWarp, kRowsOfBlock), 0, where};
}

int64_t parts_of(int64_t rows) {
  return std::min((rows + kRowsOfBlock - 1) / kRowsOfBlock, kMostParts);
}

// Calls f(Factor{}) with the type in which matrices of X enter products.
template <class X, class F>
void with_factor(F&& f) {
  if constexpr (std::is_same_v<X, float>)
    if (context().precision == Precision::bfloat16) return f(BFloat16{});
  f(X{});
}

// y = x wᵀ, and true when the product has added the bias and, where wanted, taken relu itself. cuBLASLt's
// gelu is the tanh form, which differs from the erf form used here. cuBLASLt does not document whether its
// relu propagates NaN; the emulation does not. Training detects such NaN in the weights or the gradients.
template <class Factor, class X, class Y>
bool forward_product(const LinearShape& shape, const X* x, const X* w, const Compute<X>* bias, bool relu,
                     Y* y) {
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  const AsFactor<Factor, X> by_x(x, rows * in), by_w(w, out * in);
  const Gemm<Y, Factor> product{.transpose_b = true,
                                .m = rows,
                                .n = out,
                                .k = in,
                                .a = by_x.data(),
                                .lda = in,
                                .b = by_w.data(),
                                .ldb = in,
                                .c = y,
                                .ldc = out};
  if constexpr (!std::is_same_v<Y, double>)
    if (bias) {
      const AsFactor<Y, Compute<Y>> by_bias(bias, out);
      if (gemm_with_bias(product, by_bias.data(), relu)) return true;
    }
  gemm(Backend{}, product);
  return false;
}

template <class Factor, class X>
void input_gradient(const LinearShape& shape, const Factor* gz, const X* w, X* gx) {
  const int64_t in = shape.in, out = shape.out;
  const AsFactor<Factor, X> by_w(w, out * in);
  gemm(Backend{}, Gemm<X, Factor>{.m = shape.rows,
                                  .n = in,
                                  .k = out,
                                  .a = gz,
                                  .lda = out,
                                  .b = by_w.data(),
                                  .ldb = in,
                                  .c = gx,
                                  .ldc = in});
}

// gw = gzᵀ x, and true when the product has made gbias, which may be null, itself.
template <class Factor, class X, class T = Compute<X>>
bool weight_gradient(const LinearShape& shape, const Factor* gz, const X* x, T* gw, T* gbias) {
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  const AsFactor<Factor, X> by_x(x, rows * in);
  const Gemm<T, Factor> product{.transpose_a = true,
                                .m = out,
                                .n = in,
                                .k = rows,
                                .a = gz,
                                .lda = out,
                                .b = by_x.data(),
                                .ldb = in,
                                .c = gw,
                                .ldc = in};
  if constexpr (std::is_same_v<T, float>)
    if (gbias && gemm_with_bias_gradient(product, gbias)) return true;
  gemm(Backend{}, product);
  return false;
}

template <class Y>
void finish(const LinearShape& shape, const Compute<Y>* bias, Activation activation,
            const DropoutMask& dropout, Y* pre, Y* y) {
  using T = Compute<Y>;
  const int64_t rows = shape.rows, out = shape.out;
  if (!bias && activation == Activation::none && !dropout.active()) return;
  const bool packs = out % Pack<T>::kSize == 0 && aligned_to_packs(bias, pre, y);
  const Finish<Y> f{rows, out, bias, DropoutFactors<T>(dropout), pre, y};
  with_constants<T>(packs, activation, [&](auto group, auto function) {
    launch(finish_kernel<Y, group(), function()>, over_columns(out / group(), parts_of(rows)), f);
  });
}

}  // namespace

template <class X, class Y>
void linear_forward(Backend, const LinearShape& shape, const X* x, const X* w, const Compute<X>* bias,
                    Activation activation, const DropoutMask& dropout, Y* pre, Y* y) {
  with_factor<X>([&](auto tag) {
    const bool gelu = activation == Activation::gelu;
    if (forward_product<decltype(tag)>(shape, x, w, bias, activation == Activation::relu, gelu ? pre : y))
      finish<Y>(shape, nullptr, gelu ? activation : Activation::none, dropout, pre, y);
    else
      finish(shape, bias, activation, dropout, pre, y);
  });
}

template <class X, class Y>
void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const X* w,
                     Activation activation, const DropoutMask& dropout, const Y* pre, const Y* y, X* gx,
                     Compute<X>* gw, Compute<X>* gbias) {
  using T = Compute<X>;
  const int64_t rows = shape.rows, out = shape.out, parts = parts_of(rows);
  with_factor<X>([&](auto tag) {
    using Factor = decltype(tag);
    constexpr bool kRounds = !std::is_same_v<Factor, Y>;
    // The gradient with respect to x wᵀ + bias, as it enters the products: g itself, or what start_kernel
    // makes of it, which then adds it up for the bias too.
    const bool plain = activation == Activation::none && !dropout.active() && !kRounds;
    const Scratch<Factor> buffer(plain ? 0 : rows * out);
    const auto start = [&](Factor* gz) {
      const Scratch<T> partial(gbias ? parts * out : 0);
      const bool packs = out % Pack<T>::kSize == 0 && aligned_to_packs(g, pre, y);
      const Start<Y, Factor> s{rows, out, g, y, pre, DropoutFactors<T>(dropout), gz, partial.data()};
      with_constants<T>(packs, activation, [&](auto group, auto function) {
        launch(start_kernel<Y, Factor, group(), function()>, over_columns(out / group(), parts), s);
      });
      if (gbias) collect_columns(partial.data(), parts, out, 1, ColumnTargets<T>{{gbias, nullptr}});
    };
    if (!plain) start(buffer.data());
    const Factor* gz = buffer.data();
    if constexpr (!kRounds)
      if (plain) gz = g;
    if (gx) input_gradient(shape, gz, w, gx);
    const bool bias_is_made = gw && weight_gradient<Factor>(shape, gz, x, gw, plain ? gbias : nullptr);
    if (plain && gbias && !bias_is_made) start(nullptr);
  });
}

template <class X, class Y>
struct LinearKernels {
  inline static const Instances all{&linear_forward<X, Y>, &linear_backward<X, Y>};
};
TAPEFORMER_FLOAT(template struct LinearKernels<float, float>;
                 template struct LinearKernels<BFloat16, BFloat16>;
                 template struct LinearKernels<BFloat16, float>;)
TAPEFORMER_DOUBLE(template struct LinearKernels<double, double>;)

}  // namespace tapeformer::cuda
