#include "ops/linear.h"

#include <array>
#include <type_traits>

#include "core/device_control.h"
#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/linear.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

void check_arguments(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_defined("linear", "the input", x, "the weight", weight);
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1), "linear", "input ", x.shape(),
        " does not match weight ", weight.shape(), " (out, in)");
  check(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "linear", "bias ",
        bias.defined() ? bias.shape() : Shape{}, " does not match weight ", weight.shape());
  check(get_compute_dtype(x.dtype()) == weight.dtype() && (!bias.defined() || bias.dtype() == weight.dtype()),
        "linear", "input is ", name_of(x.dtype()), " and weight ", name_of(weight.dtype()),
        "; expected equal dtypes, or a bfloat16 input with a float32 weight");
}

// Calls f.operator()<Y>() with the type Y of the result dtype. Throws ShapeError unless Y is X, or X is
// BFloat16 and Y is float.
template <class X, class F>
void visit_result_type(DType dtype, F&& f) {
  if (dtype == kDTypeOf<X>) return f.template operator()<X>();
  check(kDTypeOf<X> == DType::bfloat16 && dtype == DType::float32, "linear", "an input of ",
        name_of(kDTypeOf<X>), " does not support the result dtype ", name_of(dtype));
  if constexpr (std::is_same_v<X, BFloat16>) f.template operator()<float>();
}

LinearShape make_linear_shape(const Tensor& x, const Tensor& weight) {
  return {x.numel() / std::max<int64_t>(x.size(-1), 1), x.size(-1), weight.size(0)};
}
Shape make_result_shape(const Tensor& x, const LinearShape& shape) {
  Shape result = x.shape();
  result[-1] = shape.out;
  return result;
}

// The arguments and results of linear() that its backward pass reads. The tensors are detached from the
// tape.
struct Product {
  Tensor x;  // without elements if the weight needs no gradient, and x is not read
  Tensor weight;
  LinearShape shape;
  Shape input_shape;
  Activation activation = Activation::none;
  DropoutMask dropout = {};
  Tensor preactivation = {};  // undefined if the activation does not need it
  Tensor y = {};              // result of relu; undefined for other activations
};

// Returns the gradients of x, the weight and the bias. If an element of `needs` is false, this gradient is
// undefined.
Gradients compute_linear_gradients(const Product& product, const Tensor& gradient,
                                   const std::array<bool, 3>& needs) {
  const Tensor g = make_contiguous(gradient);
  Gradients gradients(3);
  if (needs[0]) gradients[0] = Tensor::empty(product.input_shape, product.x.dtype(), g.device());
  if (needs[1]) gradients[1] = Tensor::empty_like(product.weight);
  if (needs[2]) gradients[2] = Tensor::empty({product.shape.out}, product.weight.dtype(), g.device());
  dispatch_floating("linear", product.x, [&]<class X>(auto backend) {
    visit_result_type<X>(g.dtype(), [&]<class Y>() {
      using T = Compute<X>;
      linear_backward<X, Y>(backend, product.shape, g.data<Y>(), product.x.data<X>(),
                            product.weight.data<T>(), product.activation, product.dropout,
                            get_data_or_null<Y>(product.preactivation), get_data_or_null<Y>(product.y),
                            get_data_or_null<X>(gradients[0]), get_data_or_null<T>(gradients[1]),
                            get_data_or_null<T>(gradients[2]));
    });
  });
  return gradients;
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias, Activation activation,
              const DropoutMask& dropout, std::optional<DType> result_dtype) {
  check_arguments(input, weight, bias);
  const Tensor x = contiguous(input);
  const LinearShape shape = make_linear_shape(x, weight);
  const Tensor y = Tensor::empty(make_result_shape(x, shape), result_dtype.value_or(x.dtype()), x.device());
  const bool keep_pre = needs_preactivation(activation);
  const Tensor preactivation = keep_pre ? Tensor::empty_like(y) : Tensor{};
  dispatch_floating("linear", x, [&]<class X>(auto backend) {
    visit_result_type<X>(y.dtype(), [&]<class Y>() {
      using T = Compute<X>;
      linear_forward<X, Y>(backend, shape, x.data<X>(), weight.data<T>(), get_data_or_null<T>(bias),
                           activation, dropout, get_data_or_null<Y>(preactivation), y.data<Y>());
    });
  });
  std::vector<Tensor> inputs = {x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(
      "linear", y, inputs,
      [product = Product{requires_grad(weight) ? detach(x) : Tensor::empty({0}, x.dtype(), x.device()),
                         detach(weight), shape, x.shape(), activation, dropout, preactivation,
                         activation == Activation::relu ? detach(y) : Tensor{}},
       count = inputs.size()](const Tensor& gradient, NeededGradients needs) {
        Gradients gradients =
            compute_linear_gradients(product, gradient, {needs[0], needs[1], count > 2 && needs[2]});
        gradients.resize(count);
        return gradients;
      });
}

DType get_operand_dtype(const Tensor& x) {
  const bool rounds = x.dtype() == DType::float32 && get_precision(x.device()) == Precision::bfloat16;
  return rounds ? DType::bfloat16 : x.dtype();
}

bool uses_bfloat16_instructions(Device device) {
  return !device.is_cpu() || cpu::uses_bfloat16_instructions();
}

std::string get_cpu_gemm_library_name() {
  return cpu::get_gemm_library_name();
}

Tensor convert_to_operand_dtype(const Tensor& x) {
  return cast(x, get_operand_dtype(x));
}

void run_linear_backward(const Tensor& input, const Tensor& weight, const Tensor& bias,
                         const Tensor& gradient) {
  check_arguments(input, weight, bias);
  const Tensor x = contiguous(input);
  const LinearShape shape = make_linear_shape(x, weight);
  check(gradient.shape() == make_result_shape(x, shape), "linear", "gradient ", gradient.shape(),
        " does not match input ", x.shape(), " and weight ", weight.shape());
  const Gradients gradients =
      compute_linear_gradients({detach(x), detach(weight), shape, x.shape()}, gradient,
                               {requires_grad(x), requires_grad(weight), requires_grad(bias)});
  const Tensor* const inputs[] = {&x, &weight, &bias};
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) backward(*inputs[i], gradients[i]);
}

}  // namespace tapeformer
