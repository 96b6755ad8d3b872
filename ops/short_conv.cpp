#include "ops/short_conv.h"

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
#include "ops/index.h"
#include "ops/kernels/short_conv.h"
#include "ops/layer_passes.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "short_conv";
constexpr const char* kStepOp = "short_conv_step";

template <class T>
AttentionRows<T> get_token_rows(const Tensor& x) {
  return {x.data<std::remove_const_t<T>>(), x.strides()[0], x.rank() == 3 ? x.strides()[1] : 0, 0};
}

// The checked inputs of short_conv().
struct PreparedInputs {
  Tensor x = {}, weight = {}, history = {}, lengths = {}, boundaries = {};
  int64_t kernel = 0, lookahead = 0;
  GateActivation activation = GateActivation::none;

  template <class T>
  ShortConvInputs<T> get() const {
    ShortConvInputs<T> in;
    in.batch = x.size(0), in.length = x.size(1), in.channels = x.size(2);
    in.kernel = kernel, in.lookahead = lookahead, in.activation = activation;
    in.lengths = get_data_or_null<int64_t>(lengths);
    in.boundaries = get_data_or_null<int64_t>(boundaries);
    in.x = get_token_rows<const T>(x);
    in.weight = get_data_or_null<Compute<T>>(weight);
    in.history = get_data_or_null<T>(history);
    return in;
  }
  PreparedInputs detached() const {
    PreparedInputs copy = *this;
    for (Tensor* tensor : {&copy.x, &copy.weight, &copy.history})
      if (tensor->defined()) *tensor = detach(*tensor);
    return copy;
  }
};

PreparedInputs prepare(const char* op, const Tensor& x, int64_t kernel, const ShortConvOptions& options) {
  check_defined(op, "x", x);
  check(x.rank() == 3, op, "x ", x.shape(), " must be (batch, length, channels)");
  check(kernel >= 1 && kernel <= kMaxShortConvKernel, op, "the kernel must have 1 to ", kMaxShortConvKernel,
        " taps, not ", kernel);
  check(options.lookahead >= 0 && options.lookahead < kernel, op, "the lookahead ", options.lookahead,
        " is not in [0, ", kernel, ")");
  PreparedInputs in{.x = make_features_contiguous(x),
                    .lengths = prepare_key_lengths(op, options.lengths, x),
                    .kernel = kernel,
                    .lookahead = options.lookahead,
                    .activation = options.activation};
  if (options.history.defined()) {
    check(options.lookahead == 0, op, "a history requires a lookahead of 0, not ", options.lookahead);
    const Shape expected{x.size(0), kernel - 1, x.size(2)};
    check(options.history.shape() == expected && options.history.dtype() == x.dtype() &&
              options.history.device() == x.device(),
          op, "the history is ", name_of(options.history.dtype()), " ", options.history.shape(),
          ", expected ", name_of(x.dtype()), " ", expected, " on the device of x");
    in.history = contiguous(options.history);
  }
  if (options.boundaries.defined()) {
    check(options.boundaries.shape() == Shape{x.size(0), x.size(1)}, op, "boundaries ",
          options.boundaries.shape(), " do not match x ", x.shape(), ": expected (batch, length)");
    in.boundaries = prepare_index(op, options.boundaries, 2, x.device());
  }
  return in;
}

void check_weight(const char* op, const Tensor& x, const Tensor& weight) {
  check_defined(op, "x", x, "the weight", weight);
  check(x.rank() >= 1 && weight.rank() == 2 && weight.size(0) == x.size(-1) &&
            weight.dtype() == get_compute_dtype(x.dtype()) && weight.device() == x.device(),
        op, "the weight ", name_of(weight.dtype()), " ", weight.shape(),
        " (channels, kernel) does not match x ", name_of(x.dtype()), " ", x.shape());
}

PreparedInputs prepare(const Tensor& x, const Tensor& weight, const ShortConvOptions& options) {
  check_weight(kOp, x, weight);
  PreparedInputs in = prepare(kOp, x, weight.size(1), options);
  in.weight = contiguous(weight);
  return in;
}

void run_forward(const PreparedInputs& in, const Tensor& y) {
  dispatch_floating(kOp, in.x,
                    [&]<class T>(auto backend) { short_conv_forward(backend, in.get<T>(), y.data<T>()); });
}

// `gradients` contains the gradients of x, weight and, if there is a history, history.
void run_backward(const PreparedInputs& in, const Tensor& gradient, const Gradients& gradients) {
  const Tensor g = make_features_contiguous(gradient);
  const Tensor ghistory = in.history.defined() ? gradients[2] : Tensor{};
  dispatch_floating(kOp, in.x, [&]<class T>(auto backend) {
    short_conv_backward(backend, in.get<T>(), get_token_rows<const T>(g), get_data_or_null<T>(gradients[0]),
                        get_data_or_null<Compute<T>>(gradients[1]), get_data_or_null<T>(ghistory));
  });
}

}  // namespace

Tensor short_conv(const Tensor& x, const Tensor& weight, const ShortConvOptions& options) {
  const PreparedInputs in = prepare(x, weight, options);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  run_forward(in, y);
  std::vector<Tensor> inputs{in.x, in.weight};
  if (in.history.defined()) inputs.push_back(in.history);
  return record(kOp, y, inputs, [in = in.detached()](const Tensor& gradient, NeededGradients needs) {
    const Gradients gradients = in.history.defined()
                                    ? allocate_gradients(needs, {&in.x, &in.weight, &in.history})
                                    : allocate_gradients(needs, {&in.x, &in.weight});
    run_backward(in, gradient, gradients);
    return gradients;
  });
}

void short_conv_forward_into(const Tensor& x, const Tensor& weight, const ShortConvOptions& options,
                             const Tensor& out) {
  const PreparedInputs in = prepare(x, weight, options);
  check_result_tensor(kOp, "out", out, x.shape(), x.dtype());
  run_forward(in, out);
}

void short_conv_backward_into(const Tensor& x, const Tensor& weight, const ShortConvOptions& options,
                              const Tensor& gradient, const Gradients& gradients) {
  const PreparedInputs in = prepare(x, weight, options);
  check_gradient(kOp, gradient, x);
  check_gradients(kOp, gradients, {&x, &weight, &options.history});
  for (const Tensor& g : gradients)
    check(!g.defined() || g.is_contiguous(), kOp, "the gradients must be contiguous");
  run_backward(in, gradient, gradients);
}

void short_conv_step(const Tensor& x, const Tensor& weight, GateActivation activation, const Tensor& history,
                     const Tensor& out) {
  check_weight(kStepOp, x, weight);
  check_defined(kStepOp, "the history", history, "out", out);
  check(x.rank() == 2 && out.shape() == x.shape(), kStepOp, "x ", x.shape(), " and out ", out.shape(),
        " must be (batch, channels)");
  const int64_t kernel = weight.size(1);
  check(kernel >= 1 && kernel <= kMaxShortConvKernel, kStepOp, "the kernel must have 1 to ",
        kMaxShortConvKernel, " taps, not ", kernel);
  const Shape expected{x.size(0), kernel - 1, x.size(1)};
  check(history.shape() == expected && history.is_contiguous() && weight.is_contiguous(), kStepOp,
        "the history ", history.shape(), " must be ", expected, ", and it and the weight contiguous");
  check(x.dtype() != DType::bfloat16 && history.dtype() == x.dtype() && out.dtype() == x.dtype() &&
            (x.size(1) <= 1 || (x.strides()[1] == 1 && out.strides()[1] == 1)),
        kStepOp,
        "x, the history and out must be float32 or float64 with contiguous last dimensions, and are ",
        name_of(x.dtype()), ", ", name_of(history.dtype()), " and ", name_of(out.dtype()));
  const ShortConvShape shape{
      .batch = x.size(0), .length = 1, .channels = x.size(1), .kernel = kernel, .activation = activation};
  dispatch_float_or_double(kStepOp, x, [&]<class T>(auto backend) {
    short_conv_step(backend, shape, get_token_rows<const T>(x), weight.data<T>(), history.data<T>(),
                    get_token_rows<T>(out));
  });
}

}  // namespace tapeformer
