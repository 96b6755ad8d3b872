#include "ops/kernels/linear.h"

#include <algorithm>
#include <vector>

#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/instances.h"
#include "core/scratch.h"
#include "core/threads.h"
#include "ops/cpu/packed_product.h"
#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cpu {
namespace {

// Number of rows whose gradient stays in the cache between two products.
constexpr int64_t kGradientRows = 2 * kBlockRows;
constexpr int64_t kMaxParts = 8;    // partial weight gradients, each as large as w
constexpr int64_t kGrainRows = 32;  // minimum number of rows per thread
constexpr int64_t kFewRows = 4;
constexpr int64_t kGrainProducts = 1 << 17;  // minimum number of multiplications per thread

// Applies bias, activation and dropout to one row.
template <class T>
void finish_row(T* y, const T* bias, Activation activation, T* pre, const T* multipliers, int64_t n) {
  if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
  }
  if (activation == Activation::relu) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] < 0 ? T{0} : y[i];  // keeps NaN
  } else if (activation == Activation::gelu) {
    std::copy_n(y, n, pre);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = Gelu::value<VectorMath>(y[i]);
  }
  if (multipliers) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] *= multipliers[i];
  }
}

// Computes the gradient of one row with respect to x wᵀ + bias. For relu, y > 0 if the unit was active and
// dropout kept it, so no random numbers are drawn. If y is NaN, the gradient passes.
template <class T>
void start_row(const T* g, const T* y, const T* pre, Activation activation, T scale, const T* multipliers,
               T* out, int64_t n) {
  if (activation == Activation::relu) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = y[i] <= 0 ? T{0} : g[i] * scale;
    return;
  }
  if (multipliers) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = g[i] * multipliers[i];
  } else {
    std::copy_n(g, n, out);
  }
  if (activation == Activation::gelu) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] *= Gelu::derivative<VectorMath>(pre[i], T{0});
  }
}

// Computes products of few rows, as in decoding, by dot products that read the weights once. Four outputs at
// a time hide the latency of additions. BLAS would pack the weights first.
template <class T>
void multiply_few_rows(const LinearShape& shape, const T* x, const T* w, T* y) {
  constexpr int64_t kOutputs = 4;
  const int64_t in = shape.in, out = shape.out;
  const int64_t groups = (out + kOutputs - 1) / kOutputs;
  const int64_t grain =
      std::max<int64_t>(kGrainProducts / std::max<int64_t>(in * shape.rows * kOutputs, 1), 1);
  parallel_for(groups, grain, [=](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * kOutputs, count = std::min(kOutputs, out - first);
      const T* const w0 = w + first * in;
      const T* const w1 = w0 + (count > 1 ? in : 0);
      const T* const w2 = w0 + (count > 2 ? 2 * in : 0);
      const T* const w3 = w0 + (count > 3 ? 3 * in : 0);
      for (int64_t row = 0; row < shape.rows; ++row) {
        const T* const xr = x + row * in;
        T sums[kOutputs] = {};
        T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t i = 0; i < in; ++i) {
          s0 += xr[i] * w0[i];
          s1 += xr[i] * w1[i];
          s2 += xr[i] * w2[i];
          s3 += xr[i] * w3[i];
        }
        sums[0] = s0, sums[1] = s1, sums[2] = s2, sums[3] = s3;
        std::copy_n(sums, count, y + row * out + first);
      }
    }
  });
}

// Packs the weights as the right operand of a product with rows of `out` elements.
template <class T>
void pack_transposed_weight(const LinearShape& shape, const T* w, T* panels) {
  const int64_t in = shape.in, out = shape.out;
  parallel_for(out, kGrainProducts / std::max<int64_t>(in, 1) + 1, [&](int64_t begin, int64_t end) {
    pack_columns(w + begin * in, in, end - begin, in, T{1}, out, panels + begin * kTileColumns<T>);
  });
}

// Computes gw = gzᵀ x + beta gw.
template <class T>
void weight_product(const LinearShape& shape, int64_t rows, const T* gz, const T* x, T beta, T* gw) {
  gemm(Backend{}, Gemm<T>{.transpose_a = true,
                          .m = shape.out,
                          .n = shape.in,
                          .k = rows,
                          .a = gz,
                          .lda = shape.out,
                          .b = x,
                          .ldb = shape.in,
                          .beta = beta,
                          .c = gw,
                          .ldc = shape.in});
}

// Computes sums += the sum of the rows.
template <class T>
void add_rows(const T* rows, int64_t count, int64_t width, T* sums) {
  for (int64_t r = 0; r < count; ++r) {
    const T* const row = rows + r * width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) sums[i] += row[i];
  }
}

// Computes gw += the sum of `count` arrays.
template <class T>
void add_partial_weights(const T* partial, int64_t count, int64_t size, T* gw) {
  parallel_for(size, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t part = 0; part < count; ++part) {
      const T* const from = partial + part * size;
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) gw[i] += from[i];
    }
  });
}

}  // namespace

template <class T>
int64_t packed_weight_size(const LinearShape& shape) {
  return tile_columns<T>(shape.out) * shape.in;
}

template <class T>
void pack_weight(const LinearShape& shape, const T* w, T* packed) {
  constexpr int64_t kWidth = kTileColumns<T>;
  parallel_for(tile_columns<T>(shape.out) / kWidth,
               kGrainProducts / (kWidth * std::max<int64_t>(shape.in, 1)) + 1,
               [=](int64_t begin, int64_t end) {
                 const int64_t first = begin * kWidth, last = std::min(end * kWidth, shape.out);
                 pack_rows(w + first * shape.in, shape.in, last - first, shape.in, packed + first * shape.in);
               });
}

template <class T, class Y>
void linear_forward(Backend, const LinearShape& shape, const T* x, const Compute<T>* w,
                    const Compute<T>* bias, Activation activation, const DropoutMask& dropout, Y* pre, Y* y) {
  static_assert(std::is_same_v<T, Y>);
  const int64_t in = shape.in, out = shape.out;
  const bool few = shape.rows <= kFewRows;
  const Scratch<T> panels(few ? 0 : packed_weight_size<T>(shape));
  if (few)
    multiply_few_rows(shape, x, w, y);
  else
    pack_weight(shape, w, panels.data());
  parallel_for(shape.rows, kGrainRows, [&](int64_t first, int64_t last) {
    Scratch<T> multipliers(dropout.active() ? out : 0);
    const int64_t block = even_block(last - first, kBlockRows);
    for (int64_t row = first; row < last; row += block) {
      const int64_t rows = std::min(block, last - row);
      if (!few) packed_product(rows, out, in, x + row * in, in, panels.data(), y + row * out, out);
      for (int64_t r = row; r < row + rows; ++r) {
        if (dropout.active()) dropout_multipliers(dropout, r * out, out, multipliers.data());
        finish_row(y + r * out, bias, activation, pre ? pre + r * out : nullptr, multipliers.data(), out);
      }
    }
  });
}

int64_t min_packed_rows() {
  return kFewRows + 1;
}

// Threads divide the panels, so that each thread reads a different part of the weights.
template <class T>
void linear_forward_packed(const LinearShape& shape, const T* x, const T* packed, const T* bias,
                           Activation activation, T* pre, T* y) {
  constexpr int64_t kWidth = kTileColumns<T>;
  const int64_t rows = shape.rows, in = shape.in, out = shape.out;
  const int64_t grain = std::max<int64_t>(kGrainProducts / std::max<int64_t>(rows * in * kWidth, 1), 1);
  parallel_for((out + kWidth - 1) / kWidth, grain, [=](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const int64_t column = panel * kWidth, width = std::min(kWidth, out - column);
      const T* const weights = packed + column * in;
      for (int64_t row = 0; row < rows; row += kTileRows) {
        const int64_t count = std::min(kTileRows, rows - row);
        T* const target = y + row * out + column;
        if (width == kWidth) {
          panel_rows(count, x + row * in, in, weights, in, target, out);
        } else {
          T values[kTileRows * kWidth];
          panel_rows(count, x + row * in, in, weights, in, values, kWidth);
          for (int64_t r = 0; r < count; ++r) std::copy_n(values + r * kWidth, width, target + r * out);
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = r * out + column;
        finish_row<T>(y + at, bias ? bias + column : nullptr, activation, pre ? pre + at : nullptr, nullptr,
                      width);
      }
    }
  });
}

template <class T, class Y>
void linear_backward(Backend, const LinearShape& shape, const Y* g, const T* x, const Compute<T>* w,
                     Activation activation, const DropoutMask& dropout, const Y* pre, const Y* y, T* gx,
                     Compute<T>* gw, Compute<T>* gbias) {
  static_assert(std::is_same_v<T, Y>);
  const int64_t in = shape.in, out = shape.out;
  const bool plain = activation == Activation::none && !dropout.active();
  const T scale = dropout.active() ? static_cast<T>(dropout.scale()) : T{1};
  const bool draw = dropout.active() && activation != Activation::relu;

  // Each part sums the weight gradients of its rows; the sums are added in the order of the parts.
  const int64_t team = std::min<int64_t>(threads(), (shape.rows + kGrainRows - 1) / kGrainRows);
  const int64_t many = std::min({shape.rows / kGradientRows, team * kRangesOfThread, kMaxParts});
  const int64_t parts = std::max({team, many, int64_t{1}});
  Scratch<T> partial_gw(gw ? (parts - 1) * out * in : 0);
  Scratch<T> partial_gbias(gbias ? parts * out : 0);
  Scratch<T> panels(gx ? tile_columns<T>(in) * out : 0);
  if (gx) pack_transposed_weight(shape, w, panels.data());
  if (gbias) std::fill_n(partial_gbias.data(), parts * out, T{0});
  if (gw && shape.rows == 0) std::fill_n(gw, out * in, T{0});

  parallel_for(parts, 1, [&](int64_t part_begin, int64_t part_end) {
    Scratch<T> multipliers(draw ? out : 0);
    Scratch<T> buffer(plain ? 0 : std::min(kGradientRows, (shape.rows + parts - 1) / parts) * out);
    for (int64_t part = part_begin; part < part_end; ++part) {
      const int64_t first = shape.rows * part / parts, last = shape.rows * (part + 1) / parts;
      T* const my_gw = part == 0 ? gw : partial_gw.data() + (part - 1) * out * in;
      const int64_t block = even_block(last - first, kGradientRows);
      for (int64_t row = first; row < last; row += block) {
        const int64_t rows = std::min(block, last - row);
        const T* gz = g + row * out;
        if (!plain) {
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t at = (row + r) * out;
            if (draw) dropout_multipliers(dropout, at, out, multipliers.data());
            start_row(g + at, y ? y + at : nullptr, pre ? pre + at : nullptr, activation, scale,
                      multipliers.data(), buffer.data() + r * out, out);
          }
          gz = buffer.data();
        }
        if (gx) packed_product(rows, in, out, gz, out, panels.data(), gx + row * in, in);
        if (gw) weight_product(shape, rows, gz, x + row * in, row == first ? T{0} : T{1}, my_gw);
        if (gbias) add_rows(gz, rows, out, partial_gbias.data() + part * out);
      }
    }
  });
  if (gw) add_partial_weights(partial_gw.data(), parts - 1, out * in, gw);
  if (gbias) {
    std::fill_n(gbias, out, T{0});
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < out; ++i) gbias[i] += partial_gbias.data()[part * out + i];
  }
}

template <class T>
struct LinearKernels {
  inline static const Instances all{&linear_forward<T, T>, &linear_backward<T, T>, &packed_weight_size<T>,
                                    &pack_weight<T>, &linear_forward_packed<T>};
};
template struct LinearKernels<float>;
template struct LinearKernels<double>;

}  // namespace tapeformer::cpu
