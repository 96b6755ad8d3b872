#include "ops/kernels/linear.h"

#include <algorithm>
#include <type_traits>

#include "core/base/instances.h"
#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/cpu/arena.h"
#include "ops/cpu/linear_rows.h"
#include "ops/cpu/packed_operand.h"

// Type parameters: X is the type of the inputs, and Y is the type of the results. T is the type of the
// weights and of sums. Matrix products convert their operands to O, which is BFloat16 in bfloat16 precision
// and X otherwise.
namespace tapeformer::cpu {
namespace {

// linear_backward() divides the rows into parts, which threads process in parallel. The number of parts is at
// most the maximum of kMaxParts and the number of threads. Each part except the first needs a separate buffer
// for the gradient of the weight.
constexpr int64_t kMaxParts = 8;
constexpr int64_t kGrainRows = 32;   // minimum number of rows per thread
constexpr int64_t kBlockRows = 256;  // maximum number of rows per block, so that a block stays in the cache
constexpr int64_t kMinBlockRows = 64;
// If forward_rows() needs a buffer (rows, out) for the result of a block, the block has at most
// max(kBlockElements / out, kMinBlockRows) rows.
constexpr int64_t kBlockElements = 1 << 14;

template <class F>
void for_blocks(int64_t begin, int64_t end, int64_t max_rows, F&& f) {
  for (int64_t row = begin; row < end; row += max_rows) f(row, std::min(max_rows, end - row));
}

// Computes one row of the gradient of x wᵀ + bias, adds it to `gbias` and writes it to `out`. `gbias` and
// `out` can be null. `g` contains the same row of the gradient of y. If `factors` is not null, the result is
// g * factors, otherwise g * scale. If the activation is relu, `y` contains the same row of the output y, and
// the result is zero where y is not positive. If the activation is not relu, `y` is null.
template <class O, class T, class Y>
void compute_gradient_row(const Y* g, const T* factors, T scale, const Y* y, T* gbias, O* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    Vector<T> v = load_first(g + i, n - i);
    v *= factors ? load_first(factors + i, n - i) : Vector<T>{} + scale;
    if (y) v = load_first(y + i, n - i) <= 0 ? Vector<T>{} : v;
    if (gbias) store_first(gbias + i, load_first(gbias + i, n - i) + v, n - i);
    if (out) store_first(out + i, v, n - i);
  }
}

// Sizes of the buffers of a thread, in elements.
struct BufferSizes {
  int64_t factors = 0, sums = 0, operands = 0, inputs = 0;
};

template <class O, class T>
struct Buffers {
  Buffers(Arena arena, const BufferSizes& sizes)
      : factors(arena.allocate<T>(sizes.factors)),
        sums(arena.allocate<T>(sizes.sums)),
        operands(arena.allocate<O>(sizes.operands)),
        inputs(arena.allocate<O>(sizes.inputs)),
        bytes(arena.used_bytes()) {}

  T* factors;  // one row of dropout multipliers, times the derivative of the activation in the backward pass
  // Result of the matrix product of a block of rows with the weight, before conversion to the result type.
  T* sums;
  O *operands, *inputs;  // gradients and inputs of a block, rounded to O
  int64_t bytes;
};

template <class O, class X, class Y, class T>
void forward_rows(const LinearShape& shape, const X* x, const T* w, const T* bias, Activation activation,
                  const DropoutMask& dropout, Y* preactivation, Y* y) {
  constexpr bool kInPlace = std::is_same_v<T, Y>;
  const int64_t in = shape.in, out = shape.out;
  // oneDNN packs a weight slowly. Without oneDNN, packed_product.h returns the same bits for any number of
  // bfloat16 rows.
  const bool few = shape.rows <= kMaxRowsWithoutPacking &&
                   (!std::is_same_v<O, BFloat16> || (uses_bfloat16_instructions() && !uses_amx()));
  std::optional<PackedOperand<O>> weight;
  if (!few) weight.emplace(in, out, w, true);
  const int64_t max_block =
      kInPlace ? kBlockRows
               : std::clamp(kBlockElements / std::max<int64_t>(out, 1), kMinBlockRows, kBlockRows);
  const int64_t block = std::clamp<int64_t>(shape.rows, 1, max_block);
  const BufferSizes sizes{.factors = dropout.is_active() ? out : 0,
                          .sums = kInPlace ? 0 : block * out,
                          .inputs = std::is_same_v<O, X> ? 0 : block * in};
  const PerThreadMemory memory(Buffers<O, T>(Arena(nullptr), sizes).bytes);
  parallel_for(shape.rows, few ? kMaxRowsWithoutPacking : kGrainRows, [&](int64_t begin, int64_t end) {
    const Buffers<O, T> buffers(memory.arena(), sizes);
    T* const multipliers = dropout.is_active() ? buffers.factors : nullptr;
    for_blocks(begin, end, block, [&](int64_t first, int64_t rows) {
      T* values = buffers.sums;
      if constexpr (kInPlace) values = y + first * out;
      const O* const operand = convert_if_needed(x + first * in, rows * in, buffers.inputs);
      few ? multiply_few_rows({rows, in, out}, operand, w, values) : weight->multiply(rows, operand, values);
      for (int64_t r = 0; r < rows; ++r, values += out) {
        const int64_t at = (first + r) * out;
        if (multipliers) compute_dropout_multipliers(dropout, at, out, multipliers);
        Y* const pre_row = preactivation ? preactivation + at : nullptr;
        if constexpr (kInPlace)
          apply_epilogue(values, bias, activation, pre_row, multipliers, out);
        else
          apply_epilogue_into(values, bias, activation, pre_row, multipliers, out, y + at);
      }
    });
  });
}

// The arguments that the parts of linear_backward() share.
template <class X, class Y, class T>
struct LinearGradient {
  const LinearShape& shape;
  const Y* g;
  const X* x;
  Activation activation;
  const DropoutMask& dropout;
  const Y *preactivation, *y;
  X* gx;
  int64_t block;  // maximum number of rows of a block

  // Returns whether the backward pass computes the dropout multipliers again. For relu, it does not: an
  // element of y is positive only if the input of relu was positive and dropout kept the element.
  bool draws() const { return dropout.is_active() && activation != Activation::relu; }
  // Returns whether the gradient is multiplied by a row of factors instead of one number.
  bool has_factors() const { return draws() || needs_preactivation(activation); }
  // Returns whether matrix products can read g without a copy.
  template <class O>
  bool direct() const {
    return std::is_same_v<O, Y> && activation == Activation::none && !dropout.is_active();
  }
  template <class O>
  BufferSizes sizes() const {
    return {.factors = has_factors() ? shape.out : 0,
            .sums = std::is_same_v<X, T> ? 0 : block * shape.in,
            .operands = direct<O>() ? 0 : block * shape.out,
            .inputs = std::is_same_v<O, X> ? 0 : block * shape.in};
  }

  // Computes row `row` of the gradient of x wᵀ + bias, adds it to `gbias` and writes it to `out`. `gbias` and
  // `out` can be null. If has_factors() is true, `factors` is a workspace of shape.out elements.
  template <class O>
  void compute_row(int64_t row, T* factors, T* gbias, O* out) const {
    const int64_t n = shape.out, at = row * n;
    if (draws()) compute_dropout_multipliers(dropout, at, n, factors);
    if (needs_preactivation(activation)) {
      if (!draws()) std::fill_n(factors, n, T{1});
      visit_activation(activation, [&](auto constant) {
        using Function = ActivationFunction<constant()>;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i)
          factors[i] *=
              Function::template derivative<VectorMath>(convert_element<T>(preactivation[at + i]), T{0});
      });
    }
    compute_gradient_row(g + at, has_factors() ? factors : nullptr, static_cast<T>(dropout.scale()),
                         activation == Activation::relu ? y + at : nullptr, gbias, out, n);
  }
};

// Computes the rows [begin, end) of gradient.gx, and the contributions of these rows to the gradients gw
// (out, in) and gbias (out,). If `weight` is null, gradient.gx is not computed. gw and gbias can be null if
// these gradients are not needed.
template <class O, class X, class Y, class T>
void backward_rows(const LinearGradient<X, Y, T>& gradient, const PackedOperand<O>* weight,
                   const Buffers<O, T>& buffers, int64_t begin, int64_t end, T* gw, T* gbias) {
  const int64_t in = gradient.shape.in, out = gradient.shape.out;
  const bool direct = gradient.template direct<O>();
  if (gw && begin == end) std::fill_n(gw, out * in, T{0});
  if (gbias) std::fill_n(gbias, out, T{0});
  for_blocks(begin, end, gradient.block, [&](int64_t first, int64_t rows) {
    const O* gz = buffers.operands;
    if constexpr (std::is_same_v<O, Y>)
      if (direct) gz = gradient.g + first * out;
    if (!direct || gbias)
      for (int64_t r = 0; r < rows; ++r)
        gradient.compute_row(first + r, buffers.factors, gbias,
                             direct ? nullptr : buffers.operands + r * out);
    if (weight) {
      T* values = buffers.sums;
      if constexpr (std::is_same_v<X, T>) values = gradient.gx + first * in;
      weight->multiply(rows, gz, values);
      if constexpr (!std::is_same_v<X, T>) convert_elements(values, rows * in, gradient.gx + first * in);
    }
    if (gw)
      multiply_transposed_left(rows, out, in, gz,
                               convert_if_needed(gradient.x + first * in, rows * in, buffers.inputs),
                               first > begin, gw);
  });
}

}  // namespace

template <class X, class Y>
void linear_forward(Backend, const LinearShape& shape, const X* x, const Compute<X>* w,
                    const Compute<X>* bias, Activation activation, const DropoutMask& dropout,
                    Y* preactivation, Y* y) {
  visit_operand_type<X>(
      [&]<class O>() { forward_rows<O>(shape, x, w, bias, activation, dropout, preactivation, y); });
}

// The rows are divided into parts, and the gradients of the parts are added in order, so that the result does
// not depend on the scheduling of threads.
template <class X, class Y>
void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const Compute<X>* w,
                     Activation activation, const DropoutMask& dropout, const Y* preactivation, const Y* y,
                     X* gx, Compute<X>* gw, Compute<X>* gbias) {
  using T = Compute<X>;
  const int64_t in = shape.in, out = shape.out;
  const int64_t team = std::min<int64_t>(get_thread_count(), (shape.rows + kGrainRows - 1) / kGrainRows);
  const int64_t many = std::min({shape.rows / kBlockRows, team * kMaxRangesPerThread, kMaxParts});
  const int64_t parts = std::max({team, many, int64_t{1}});
  // A product of fewer than kMinBlockRows rows takes as long as a product of kMinBlockRows rows.
  const int64_t group = shape.rows >= 4 * parts * kMinBlockRows ? kMinBlockRows : 1;
  const auto first_row = [&](int64_t part) {
    return part == parts ? shape.rows : shape.rows * part / parts / group * group;
  };
  const Scratch<T> partial_gw(gw ? (parts - 1) * out * in : 0), partial_gbias(gbias ? (parts - 1) * out : 0);
  const LinearGradient<X, Y, T> gradient{
      shape,      g,       x,
      activation, dropout, preactivation,
      y,          gx,      std::min(kBlockRows, (shape.rows + parts - 1) / parts)};
  visit_operand_type<X>([&]<class O>() {
    std::optional<PackedOperand<O>> weight;
    if (gx) weight.emplace(out, in, w, false);
    const BufferSizes sizes = gradient.template sizes<O>();
    const PerThreadMemory memory(Buffers<O, T>(Arena(nullptr), sizes).bytes);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      const auto target = [](int64_t part, T* first, T* others, int64_t size) {
        return !first || part == 0 ? first : others + (part - 1) * size;
      };
      const Buffers<O, T> buffers(memory.arena(), sizes);
      for (int64_t part = begin; part < end; ++part)
        backward_rows(gradient, gx ? &*weight : nullptr, buffers, first_row(part), first_row(part + 1),
                      target(part, gw, partial_gw.data(), out * in),
                      target(part, gbias, partial_gbias.data(), out));
    });
  });
  if (gw) add_partial_sums(partial_gw.data(), parts - 1, out * in, gw);
  if (gbias) add_partial_sums(partial_gbias.data(), parts - 1, out, gbias);
}

template <class X, class Y>
struct LinearKernels {
  inline static const FunctionInstances all{&linear_forward<X, Y>, &linear_backward<X, Y>};
};
template struct LinearKernels<float, float>;
template struct LinearKernels<double, double>;
template struct LinearKernels<BFloat16, BFloat16>;
template struct LinearKernels<BFloat16, float>;

}  // namespace tapeformer::cpu
