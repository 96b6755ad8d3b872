#include "ops/optimizer_step.h"

#include <cstring>

#include "core/dispatch.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "apply_optimizer_step";

template <class T>
std::vector<ParameterArrays<T>> arrays_of(const std::vector<ParameterTensors>& parameters) {
  std::vector<ParameterArrays<T>> list;
  for (const ParameterTensors& parameter : parameters)
    list.push_back({parameter.parameter.data<T>(), parameter.gradient.data<T>(),
                    parameter.first_moment.data<T>(),
                    parameter.second_moment.defined() ? parameter.second_moment.data<T>() : nullptr,
                    parameter.parameter.numel(), parameter.decays});
  return list;
}

const UpdateRule* get_rule(const Tensor& memory) {
  check(memory.shape() == Shape{sizeof(UpdateRule)}, kOp, "rule ", memory.shape(),
        " was not created by copy_rule_to_device");
  return reinterpret_cast<const UpdateRule*>(memory.data<uint8_t>());
}

}  // namespace

Tensor copy_rule_to_device(Device device, const UpdateRule& rule) {
  const Tensor memory = Tensor::empty({sizeof(UpdateRule)}, DType::uint8, device);
  overwrite_rule(memory, rule);
  return memory;
}

void overwrite_rule(const Tensor& memory, const UpdateRule& rule) {
  const Tensor bytes = Tensor::empty({sizeof(UpdateRule)}, DType::uint8);
  std::memcpy(bytes.raw_data(), &rule, sizeof(UpdateRule));
  memory.copy_from(bytes);
}

Tensor apply_optimizer_step(const std::vector<ParameterTensors>& parameters, const Tensor& rule,
                            const Clipping& clipping) {
  if (parameters.empty()) return Tensor::zeros({}, DType::float64);
  const Device device = parameters[0].parameter.device();
  const auto count = static_cast<int64_t>(parameters.size());
  const Tensor squares = Tensor::empty({count}, DType::float64, device), scales = Tensor::empty_like(squares);
  const Tensor norm = Tensor::empty({}, DType::float64, device);
  dispatch_float_or_double(kOp, parameters[0].parameter, [&]<class T>(auto backend) {
    const std::vector<ParameterArrays<T>> list = arrays_of<T>(parameters);
    compute_squared_norms(backend, list.data(), count, squares.data<double>());
    compute_clip_scales(backend, clipping, squares.data<double>(), count, scales.data<double>(),
                        norm.data<double>());
    apply_optimizer_step(backend, get_rule(rule), list.data(), count, scales.data<double>(),
                         clipping.max_value);
  });
  return norm;
}

void compute_squared_norms_into(const std::vector<Tensor>& tensors, const Tensor& squares) {
  constexpr const char* kNorms = "compute_squared_norms";
  const auto count = static_cast<int64_t>(tensors.size());
  check(squares.shape() == Shape{count} && squares.is_contiguous(), kNorms, "squares ", squares.shape(),
        " must be contiguous ", Shape{count});
  if (tensors.empty()) return;
  std::vector<Tensor> contiguous;
  for (const Tensor& x : tensors) contiguous.push_back(x.is_contiguous() ? x : x.alias().clone());
  dispatch_float_or_double(kNorms, tensors[0], [&]<class T>(auto backend) {
    std::vector<ParameterArrays<T>> list;
    for (const Tensor& x : contiguous) list.push_back({nullptr, x.data<T>(), nullptr, nullptr, x.numel()});
    compute_squared_norms(backend, list.data(), count, squares.data<double>());
  });
}

GradientScales compute_gradient_scales(const std::vector<Tensor>& gradients, const Clipping& clipping) {
  const auto count = static_cast<int64_t>(gradients.size());
  const Tensor squares = compute_squared_norms(gradients), scales = Tensor::empty_like(squares);
  const Tensor norm = Tensor::zeros({}, DType::float64, squares.device());
  if (count > 0)
    dispatch_float_or_double("compute_gradient_scales", squares, [&]<class T>(auto backend) {
      compute_clip_scales(backend, clipping, squares.data<double>(), count, scales.data<double>(),
                          norm.data<double>());
    });
  return {scales, norm};
}

Tensor compute_squared_norms(const std::vector<Tensor>& tensors) {
  const Device device = tensors.empty() ? kCpu : tensors[0].device();
  const Tensor squares = Tensor::empty({static_cast<int64_t>(tensors.size())}, DType::float64, device);
  compute_squared_norms_into(tensors, squares);
  return squares;
}

void update_moving_average(const Tensor& average, const Tensor& value, const Tensor& rule) {
  check(average.shape() == value.shape() && average.dtype() == value.dtype(), "update_moving_average",
        "average ", name_of(average.dtype()), " ", average.shape(), " does not match value ",
        name_of(value.dtype()), " ", value.shape());
  dispatch_float_or_double("update_moving_average", average, [&]<class T>(auto backend) {
    update_moving_average(backend, average.data<T>(), value.data<T>(), get_rule(rule), average.numel());
  });
}

}  // namespace tapeformer
