#include "ops/conv1d.h"

#include <algorithm>

#include "core/dispatch.h"
#include "ops/kernels/gemm.h"
#include "ops/lengths.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "conv1d";

struct Sizes {
  int64_t batch, frames, in, out, kernel, steps, padded;
  int64_t row() const { return kernel * in; }
};

Sizes make_sizes(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  check(x.rank() == 3 && weight.rank() == 3 && x.size(2) == weight.size(2) && weight.size(1) > 0, kOp,
        "input ", x.shape(), " (batch, frames, in) does not match weight ", weight.shape(),
        " (out, kernel, in)");
  check(!bias.defined() || bias.shape() == Shape{weight.size(0)}, kOp, "bias ",
        bias.defined() ? bias.shape() : Shape{}, " does not match weight ", weight.shape());
  check(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == x.dtype()), kOp, "input is ",
        name_of(x.dtype()), " and weight ", name_of(weight.dtype()),
        "; input, weight and bias must have equal dtypes");
  check(options.stride > 0 && options.padding_before >= 0 && options.padding_after >= 0, kOp, "stride ",
        options.stride, " must be positive, and zeros before and after, ", options.padding_before, " and ",
        options.padding_after, ", must not be negative");
  const int64_t frames = x.size(1);
  return {.batch = x.size(0),
          .frames = frames,
          .in = x.size(2),
          .out = weight.size(0),
          .kernel = weight.size(1),
          .steps = count_conv1d_steps(frames, weight.size(1), options),
          .padded = frames + options.padding_before + options.padding_after};
}

// Returns frames [first, first + count) of sequence b.
Tensor view_frames(const Tensor& x, int64_t b, int64_t first, int64_t count) {
  const int64_t frames = x.size(1), dim = x.size(2);
  return x.alias({count, dim}, {dim, 1}, (b * frames + first) * dim);
}

template <class F>
void for_sequences(const Tensor& lengths, F&& f) {
  for (int64_t b = 0; b < lengths.numel(); ++b) f(b, lengths.data<int64_t>()[b]);
}

void clear_beyond(const Tensor& y, const Tensor& lengths, int64_t kernel, const Conv1dOptions& options) {
  for_sequences(lengths, [&](int64_t b, int64_t length) {
    const int64_t steps = count_conv1d_steps(length, kernel, options);
    view_frames(y, b, steps, y.size(1) - steps).fill(0);
  });
}

// Divides the kernel positions into groups of at most `stride` positions. Within a group, the input windows
// of different output steps do not overlap. For each group, calls f(first, count), where the group consists
// of `count` columns of the weight matrix (out, kernel * in) from column `first`.
template <class F>
void for_groups(const Sizes& s, int64_t stride, F&& f) {
  for (int64_t k = 0; k < s.kernel; k += stride) f(k * s.in, std::min(stride, s.kernel - k) * s.in);
}

// Adds the convolution of `padded` (batch, padded, in) and `weight` (out, kernel, in) to y (batch, steps,
// out). Step t of a sequence is computed from the `kernel` frames of `padded` that begin at frame stride * t.
template <class T, class Backend>
void add_products(Backend backend, const Sizes& s, const Tensor& padded, const Tensor& weight, int64_t stride,
                  const Tensor& y) {
  for_groups(s, stride, [&](int64_t first, int64_t width) {
    const Gemm<T> product{.transpose_b = true,
                          .m = s.steps,
                          .n = s.out,
                          .k = width,
                          .a = padded.data<T>() + first,
                          .lda = stride * s.in,
                          .b = weight.data<T>() + first,
                          .ldb = s.row(),
                          .beta = 1,
                          .c = y.data<T>(),
                          .ldc = s.out};
    batched_gemm(backend, product, s.batch, s.padded * s.in, 0, s.steps * s.out);
  });
}

// Adds the gradient of the weight to gw (out, kernel * in). The gradients of the sequences of the batch are
// added in order, so the result is deterministic.
template <class T, class Backend>
void compute_weight_gradient(Backend backend, const Sizes& s, const Tensor& padded, const Tensor& g,
                             int64_t stride, const Tensor& gw) {
  for_groups(s, stride, [&](int64_t first, int64_t width) {
    for (int64_t b = 0; b < s.batch; ++b)
      batched_gemm(backend,
                   Gemm<T>{.transpose_a = true,
                           .m = s.out,
                           .n = width,
                           .k = s.steps,
                           .a = g.data<T>() + b * s.steps * s.out,
                           .lda = s.out,
                           .b = padded.data<T>() + b * s.padded * s.in + first,
                           .ldb = stride * s.in,
                           .beta = 1,
                           .c = gw.data<T>() + first,
                           .ldc = s.row()},
                   1, 0, 0, 0);
  });
}

// Adds the gradient of the padded sequences to gpadded (batch, padded, in). If the kernel is larger than the
// stride, the input windows of adjacent steps overlap. Each matrix product therefore processes one group of
// for_groups(), so that the rows of its result do not overlap in gpadded.
template <class T, class Backend>
void compute_padded_gradient(Backend backend, const Sizes& s, const Tensor& weight, const Tensor& g,
                             int64_t stride, const Tensor& gpadded) {
  for_groups(s, stride, [&](int64_t first, int64_t width) {
    const Gemm<T> product{.m = s.steps,
                          .n = width,
                          .k = s.out,
                          .a = g.data<T>(),
                          .lda = s.out,
                          .b = weight.data<T>() + first,
                          .ldb = s.row(),
                          .beta = 1,
                          .c = gpadded.data<T>() + first,
                          .ldc = stride * s.in};
    batched_gemm(backend, product, s.batch, s.steps * s.out, 0, s.padded * s.in);
  });
}

}  // namespace

int64_t count_conv1d_steps(int64_t frames, int64_t kernel, const Conv1dOptions& options) {
  const int64_t room = frames + options.padding_before + options.padding_after - kernel;
  return frames == 0 || room < 0 ? 0 : room / options.stride + 1;
}

Tensor conv1d(const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& lengths,
              const Conv1dOptions& options) {
  check_defined(kOp, "the input", input, "the weight", weights);
  const Sizes s = make_sizes(input, weights, bias, options);
  const Tensor x = contiguous(input), weight = contiguous(weights);
  const Tensor counts = prepare_lengths(kOp, "length", lengths, s.batch, s.frames);
  const auto make = [&](const Shape& shape) { return Tensor::empty(shape, x.dtype(), x.device()); };
  const Tensor padded = make({s.batch, s.padded, s.in});
  padded.fill(0);
  for_sequences(counts, [&](int64_t b, int64_t length) {
    view_frames(padded, b, options.padding_before, length).copy_from(view_frames(x, b, 0, length));
  });
  const Tensor y = make({s.batch, s.steps, s.out});
  if (bias.defined())
    y.copy_from(bias.alias(y.shape(), {0, 0, 1}));
  else
    y.fill(0);
  dispatch_float_or_double(
      kOp, x, [&]<class T>(auto backend) { add_products<T>(backend, s, padded, weight, options.stride, y); });
  clear_beyond(y, counts, s.kernel, options);
  const std::vector<Tensor> inputs = bias.defined() ? std::vector{x, weight, bias} : std::vector{x, weight};
  return record(kOp, y, inputs,
                [s, options, counts, padded, weight = detach(weight), count = inputs.size()](
                    const Tensor& gradient, NeededGradients needs) {
                  const Tensor g = gradient.clone();
                  clear_beyond(g, counts, s.kernel, options);
                  Gradients result(count);
                  if (needs[0]) {
                    const Tensor gpadded = Tensor::zeros_like(padded);
                    dispatch_float_or_double(kOp, g, [&]<class T>(auto backend) {
                      compute_padded_gradient<T>(backend, s, weight, g, options.stride, gpadded);
                    });
                    result[0] = Tensor::zeros({s.batch, s.frames, s.in}, g.dtype(), g.device());
                    for_sequences(counts, [&](int64_t b, int64_t length) {
                      view_frames(result[0], b, 0, length)
                          .copy_from(view_frames(gpadded, b, options.padding_before, length));
                    });
                  }
                  if (needs[1]) {
                    result[1] = Tensor::zeros_like(weight);
                    dispatch_float_or_double(kOp, g, [&]<class T>(auto backend) {
                      compute_weight_gradient<T>(backend, s, padded, g, options.stride, result[1]);
                    });
                  }
                  if (count > 2 && needs[2]) result[2] = sum(reshape(g, {s.batch * s.steps, s.out}), 0);
                  return result;
                });
}

}  // namespace tapeformer
