// The passes of short convolutions and gated norms as Python functions of torch tensors. The caller allocates
// the results. tapeformer/torch/_layers.py documents the arguments.
#include "ops/layer_passes.h"
#include "ops/rms_norm.h"
#include "ops/short_conv.h"
#include "python/src/tensor_access.h"

namespace tapeformer::python {
namespace {

using Object = nb::handle;

Tensor read_target(const OptionalObject& x) {
  return x ? read_new_tensor(nb::handle(*x), "gradient") : Tensor();
}

ShortConvOptions read_conv_options(int activation, const OptionalObject& lengths,
                                   const OptionalObject& history, const OptionalObject& boundaries) {
  return {.activation = static_cast<GateActivation>(activation),
          .lengths = read_tensor(lengths, "lengths"),
          .history = read_tensor(history, "history"),
          .boundaries = read_tensor(boundaries, "boundaries")};
}

void conv_forward(int threads, Object x, Object weight, const OptionalObject& history,
                  const OptionalObject& lengths, const OptionalObject& boundaries, int activation,
                  Object out) {
  const Tensor tx = read_tensor(x, "x"), tw = read_tensor(weight, "weight"), y = read_new_tensor(out, "out");
  const ShortConvOptions options = read_conv_options(activation, lengths, history, boundaries);
  check_dtypes(tx, {{"history", options.history}}, {{"weight", tw}});
  const ComputeScope compute(threads, tx);
  short_conv_forward_into(tx, tw, options, y);
}

void conv_backward(int threads, Object x, Object weight, const OptionalObject& history,
                   const OptionalObject& lengths, const OptionalObject& boundaries, int activation,
                   Object gradient, Object gx, Object gweight, const OptionalObject& ghistory) {
  const Tensor tx = read_tensor(x, "x"), tw = read_tensor(weight, "weight"),
               g = read_tensor(gradient, "gradient");
  const ShortConvOptions options = read_conv_options(activation, lengths, history, boundaries);
  const Gradients gradients{read_new_tensor(gx, "gx"), read_new_tensor(gweight, "gweight"),
                            read_target(ghistory)};
  const ComputeScope compute(threads, tx);
  short_conv_backward_into(tx, tw, options, g, gradients);
}

RmsNormOptions read_norm_options(const OptionalObject& gate, int activation, double eps) {
  return {.gate = read_tensor(gate, "gate"),
          .gate_activation = static_cast<GateActivation>(activation),
          .eps = eps};
}

void norm_forward(int threads, Object x, const OptionalObject& weight, const OptionalObject& gate,
                  int activation, double eps, Object out) {
  const Tensor tx = read_tensor(x, "x"), tw = read_tensor(weight, "weight"), y = read_new_tensor(out, "out");
  const RmsNormOptions options = read_norm_options(gate, activation, eps);
  check_dtypes(tx, {{"gate", options.gate}}, {{"weight", tw}});
  const ComputeScope compute(threads, tx);
  rms_norm_forward_into(tx, tw, options, y);
}

void norm_backward(int threads, Object x, const OptionalObject& weight, const OptionalObject& gate,
                   int activation, double eps, Object gradient, Object gx, const OptionalObject& gweight,
                   const OptionalObject& ggate) {
  const Tensor tx = read_tensor(x, "x"), tw = read_tensor(weight, "weight"),
               g = read_tensor(gradient, "gradient");
  const RmsNormOptions options = read_norm_options(gate, activation, eps);
  const Gradients gradients{read_new_tensor(gx, "gx"), read_target(gweight), read_target(ggate)};
  const ComputeScope compute(threads, tx);
  rms_norm_backward_into(tx, tw, options, g, gradients);
}

}  // namespace

void bind_layers(nb::module_& m) {
  add_function(m, "conv_forward", conv_forward);
  add_function(m, "conv_backward", conv_backward);
  add_function(m, "norm_forward", norm_forward);
  add_function(m, "norm_backward", norm_backward);
}

}  // namespace tapeformer::python
