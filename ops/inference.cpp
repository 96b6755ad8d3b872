#include "ops/inference.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/index.h"
#include "ops/kernels/linear.h"
#include "ops/kernels/linear_norm.h"
#include "ops/kernels/norm.h"
#include "ops/kernels/softmax.h"
#include "ops/rms_norm.h"

namespace tapeformer {

void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out, const Tensor& added_rows) {
  const int64_t value_dim = table.size(1), position_dim = positions.size(1), batch = tokens.numel();
  check(out.shape() == Shape{batch, value_dim + position_dim}, "embed_into", "out ", out.shape(), " must be ",
        Shape{batch, value_dim + position_dim});
  check(position >= 0 && position < positions.size(0), "embed_into", "position ", position,
        " is beyond the longest sequence, ", positions.size(0));
  check(!added_rows.defined() || (added_rows.shape() == Shape{added_rows.size(0), out.size(1)} &&
                                  added_rows.is_contiguous() && position < added_rows.size(0)),
        "embed_into", "added ", added_rows.defined() ? added_rows.shape() : Shape{},
        " must be contiguous, with rows of ", out.size(1), " elements and more than ", position, " rows");
  dispatch_float_or_double("embed_into", table, [&]<class T>(auto backend) {
    visit_index_dtype("embed_into", tokens.dtype(), [&](auto index) {
      embed_rows(backend, table.data<T>(), table.size(0), tokens.data<decltype(index)>(), positions.data<T>(),
                 get_data_or_null<T>(added_rows), position, out.data<T>(), batch, value_dim, position_dim);
    });
  });
}

DecodingLinear::DecodingLinear(const Tensor& weight, const Tensor& bias, int64_t rows, WeightFormat format)
    : weight_(weight),
      bias_(bias.defined() ? bias : Tensor::zeros({weight.size(0)}, weight.dtype(), weight.device())),
      rounded_weights_({weight_, bias_}) {
  rounded_weights_.update();
  const bool is_int8 = format == WeightFormat::int8;
  if (is_int8 && (!weight.device().is_cpu() || weight.dtype() != DType::float32))
    throw std::invalid_argument("weights in 8-bit integers need float32 weights on the CPU");
  if (!weight.device().is_cpu()) return;  // cuBLAS needs no packed weight
  const LinearShape shape{rows, weight.size(1), weight.size(0)};
  const DType operand = is_int8 ? DType::float32 : get_operand_dtype(weight);
  visit_floating_dtype("DecodingLinear", operand, [&]<class O>(O) {
    using T = Compute<O>;
    const auto prepared = std::make_shared<const cpu::DecodingWeight<O>>(shape, weight.data<T>(), format);
    cpu_product_ = [prepared, bias = bias_](const Tensor& x, Activation activation,
                                            const Tensor& preactivation, const Tensor& out) {
      prepared->forward(x.size(0), x.data<T>(), bias.data<T>(), activation,
                        get_data_or_null<T>(preactivation), out.data<T>());
    };
  });
}

void DecodingLinear::forward_into(const Tensor& x, Activation activation, const Tensor& out,
                                  const Tensor& scratch) const {
  const LinearShape shape{x.size(0), weight_.size(1), weight_.size(0)};
  check(x.size(1) == shape.in && out.shape() == Shape{shape.rows, shape.out}, "DecodingLinear", "input ",
        x.shape(), " and out ", out.shape(), " do not match weight ", weight_.shape());
  const bool needs_scratch = needs_preactivation(activation);
  check(!needs_scratch || scratch.defined(), "DecodingLinear", "the activation needs scratch memory");
  const Tensor preactivation = needs_scratch ? scratch : Tensor{};
  if (cpu_product_) return cpu_product_(x, activation, preactivation, out);
  const RoundedWeights::Scope scope(rounded_weights_);
  dispatch_floating("DecodingLinear", x, [&]<class X>(auto backend) {
    using T = Compute<X>;
    const auto multiply = [&]<class Y>(Y) {
      linear_forward<X, Y>(backend, shape, x.data<X>(), weight_.data<T>(), bias_.data<T>(), activation,
                           DropoutMask{}, get_data_or_null<Y>(preactivation), out.data<Y>());
    };
    if (out.dtype() == x.dtype())
      multiply(X{});
    else
      multiply(T{});
  });
}

bool DecodingLinear::try_fused_residual_norm(const Tensor& x, const Tensor& residual,
                                             const DecodingNorm& norm, const Tensor& out,
                                             const Tensor& rounded_out) const {
  if constexpr (kHasCuda) {
    if (!norm.bias.defined()) return false;
    const BFloat16* const weight = rounded_weights_.find_copy(weight_);
    if (!weight || x.dtype() != DType::bfloat16 || out.dtype() != DType::float32) return false;
    const DeviceScope scope(x.device(), "DecodingLinear");
    return cuda::try_linear_norm_forward(cuda::Backend{},
                                         {.shape = {x.size(0), weight_.size(1), weight_.size(0)},
                                          .x = x.data<BFloat16>(),
                                          .w = weight,
                                          .bias = bias_.data<float>(),
                                          .residual = residual.data<float>(),
                                          .norm_weight = norm.weight.data<float>(),
                                          .norm_bias = norm.bias.data<float>(),
                                          .eps = norm.eps,
                                          .y = out.data<float>(),
                                          .rounded_y = get_data_or_null<BFloat16>(rounded_out)});
  }
  return false;
}

void DecodingLinear::forward_residual_norm_into(const Tensor& x, const Tensor& residual,
                                                const DecodingNorm& norm, const Tensor& branch_result,
                                                const Tensor& out, const Tensor& rounded_out) const {
  check(x.size(1) == weight_.size(1) && out.shape() == Shape{x.size(0), weight_.size(0)} &&
            residual.shape() == out.shape() && branch_result.shape() == out.shape() &&
            (!rounded_out.defined() || rounded_out.shape() == out.shape()),
        "DecodingLinear", "input ", x.shape(), ", residual ", residual.shape(), " and out ", out.shape(),
        " do not match weight ", weight_.shape());
  if (try_fused_residual_norm(x, residual, norm, out, rounded_out)) return;
  forward_into(x, Activation::none, branch_result);
  norm_into(residual, branch_result, norm, out, rounded_out);
}

void round_to_int8_blocks(const Tensor& matrix) {
  check(matrix.rank() == 2 && matrix.is_contiguous() && matrix.dtype() == DType::float32 &&
            matrix.device().is_cpu(),
        "round_to_int8_blocks", "expected a contiguous float32 matrix on the CPU");
  cpu::round_to_int8_blocks(matrix.size(0), matrix.size(1), matrix.data<float>());
}

void norm_into(const Tensor& x, const Tensor& branch, const DecodingNorm& norm, const Tensor& out,
               const Tensor& rounded_out) {
  check(x.shape() == out.shape() && (!rounded_out.defined() || rounded_out.shape() == out.shape()),
        "norm_into", "out ", out.shape(), " and `rounded_out` must have the shape of the input, ", x.shape());
  if (!norm.bias.defined()) {
    if (branch.defined()) add_into(x, branch, out);
    rms_norm_into(branch.defined() ? out : x, norm.weight, {.eps = norm.eps}, out);
    if (rounded_out.defined()) rounded_out.copy_from(out);
    return;
  }
  dispatch_float_or_double("norm_into", x, [&]<class T>(auto backend) {
    layer_norm_forward<T, T>(backend, x.size(0), x.size(1), x.data<T>(), get_data_or_null<T>(branch),
                             DropoutMask{}, norm.weight.data<T>(), norm.bias.data<T>(), norm.eps,
                             out.data<T>(), nullptr, nullptr, get_data_or_null<BFloat16>(rounded_out));
  });
}

namespace {

template <class Function>
void compute_binary_into(const char* op, const Tensor& a, const Tensor& b, const Tensor& out) {
  check(a.shape() == b.shape() && a.shape() == out.shape(), op, "shapes ", a.shape(), ", ", b.shape(),
        " and ", out.shape(), " must be equal");
  dispatch_float_or_double(op, a, [&]<class T>(auto backend) {
    binary_forward<Function>(backend, a.data<T>(), b.data<T>(), out.data<T>(), a.numel());
  });
}
template <class Function>
void compute_unary_into(const char* op, const Tensor& x, const Tensor& out) {
  check(x.shape() == out.shape(), op, "shapes ", x.shape(), " and ", out.shape(), " must be equal");
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    unary_forward<Function>(backend, x.data<T>(), out.data<T>(), x.numel());
  });
}

}  // namespace

void add_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  compute_binary_into<Add>("add_into", a, b, out);
}
void mul_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  compute_binary_into<Multiply>("mul_into", a, b, out);
}
void div_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  compute_binary_into<Divide>("div_into", a, b, out);
}
void sigmoid_into(const Tensor& x, const Tensor& out) {
  compute_unary_into<Sigmoid>("sigmoid_into", x, out);
}
void softplus_into(const Tensor& x, const Tensor& out) {
  compute_unary_into<Softplus>("softplus_into", x, out);
}

void multiply_heads_into(const Tensor& x, const Tensor& weight, const Tensor& out) {
  const char* const op = "multiply_heads_into";
  check(x.rank() == 3 && weight.rank() == 3, op, "x ", x.shape(),
        " must be (batch, heads, dim), and the weight ", weight.shape(), " (heads, dim, width)");
  const int64_t batch = x.size(0), heads = x.size(1), dim = x.size(2), width = weight.size(2);
  check(weight.shape() == Shape{heads, dim, width} && out.shape() == Shape{batch, heads, width}, op, "out ",
        out.shape(), " must be the product of x ", x.shape(), " and the weight ", weight.shape());
  check(x.is_contiguous() && weight.is_contiguous() && out.is_contiguous(), op,
        "expected contiguous tensors");
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    multiply_heads(backend, batch, heads, dim, width, x.data<T>(), weight.data<T>(), out.data<T>());
  });
}

void softmax_in_place(const Tensor& x) {
  check(x.is_contiguous() && x.rank() > 0 && x.size(-1) > 0, "softmax_in_place",
        "expected a contiguous tensor whose rows are not empty, got ", x.shape());
  dispatch_float_or_double("softmax_in_place", x, [&]<class T>(auto backend) {
    row_softmax(backend, x.data<T>(), x.data<T>(), x.numel() / x.size(-1), x.size(-1));
  });
}

}  // namespace tapeformer
