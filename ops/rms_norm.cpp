#include "ops/rms_norm.h"

#include <algorithm>
#include <optional>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/rms_norm.h"
#include "ops/layer_passes.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kRmsNorm = "rms_norm";
constexpr const char* kL2Norm = "l2_norm";

// Returns the strides of the rows of x, or nothing if the rows do not have two strides or their elements are
// not contiguous.
std::optional<NormRows<const void>> find_row_strides(const Tensor& x) {
  if (x.size(-1) > 1 && x.strides()[-1] != 1) return {};
  int64_t sizes[2] = {1, 1}, strides[2] = {0, 0};
  int level = 0;
  for (int dim = x.rank() - 2; dim >= 0; --dim) {
    if (x.size(dim) == 1) continue;
    if (sizes[level] > 1 && x.strides()[dim] != sizes[level] * strides[level] && ++level > 1) return {};
    if (sizes[level] == 1) strides[level] = x.strides()[dim];
    sizes[level] *= x.size(dim);
  }
  return NormRows<const void>{nullptr, std::max<int64_t>(sizes[0], 1), strides[1], strides[0]};
}

Tensor make_rows_strided(const Tensor& x) {
  return x.numel() == 0 || !find_row_strides(x) ? contiguous(x) : x;
}

template <class T>
NormRows<T> get_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const auto rows = find_row_strides(x).value_or(NormRows<const void>{});
  return {x.data<std::remove_const_t<T>>(), rows.inner_rows, rows.outer_stride, rows.inner_stride};
}

// The checked inputs of a norm. `weight` and `gate` may be undefined.
struct NormInputs {
  Tensor x, weight, gate;
  RmsNormShape shape;

  std::vector<Tensor> list_defined() const {
    std::vector<Tensor> list{x};
    for (const Tensor* tensor : {&weight, &gate})
      if (tensor->defined()) list.push_back(*tensor);
    return list;
  }
};

NormInputs prepare(const char* op, const Tensor& x, const Tensor& weight, const RmsNormOptions& options) {
  check_defined(op, "x", x);
  check(x.rank() >= 1 && x.size(-1) > 0, op, "x ", x.shape(), " must have rows with at least one element");
  if (weight.defined())
    check(weight.shape() == Shape{x.size(-1)} && weight.dtype() == get_compute_dtype(x.dtype()) &&
              weight.device() == x.device(),
          op, "the weight ", name_of(weight.dtype()), " ", weight.shape(), " does not match x ",
          name_of(x.dtype()), " ", x.shape());
  const Tensor& gate = options.gate;
  if (gate.defined())
    check(gate.shape() == x.shape() && gate.dtype() == x.dtype() && gate.device() == x.device(), op,
          "the gate ", name_of(gate.dtype()), " ", gate.shape(), " does not match x ", name_of(x.dtype()),
          " ", x.shape());
  check(options.eps >= 0, op, "eps must not be negative, but is ", options.eps);
  const int64_t dim = x.size(-1);
  return {x,
          weight,
          gate,
          {.rows = x.numel() / dim,
           .dim = dim,
           .factor = 1 / static_cast<double>(dim),
           .eps = options.eps,
           .activation = options.gate_activation}};
}

NormInputs prepare_l2(const char* op, const Tensor& x, double scale, double eps) {
  NormInputs in = prepare(op, x, {}, {.eps = eps});
  in.shape.factor = 1;
  in.shape.scale = scale;
  return in;
}

NormInputs make_rows_strided(NormInputs in) {
  in.x = make_rows_strided(in.x);
  if (in.weight.defined()) in.weight = contiguous(in.weight);
  if (in.gate.defined()) in.gate = make_rows_strided(in.gate);
  return in;
}

void run_forward(const char* op, const NormInputs& in, const Tensor& y) {
  dispatch_floating(op, in.x, [&]<class T>(auto backend) {
    rms_norm_forward<T, T>(backend, in.shape, get_rows<const T>(in.x),
                           get_data_or_null<Compute<T>>(in.weight), get_rows<const T>(in.gate),
                           get_rows<T>(y));
  });
}

// The gradients of x, weight and gate can be undefined.
void run_backward(const char* op, const NormInputs& in, const Tensor& gradient, const Tensor& gx,
                  const Tensor& gweight, const Tensor& ggate) {
  const Tensor g = make_rows_strided(gradient);
  dispatch_floating(op, in.x, [&]<class T>(auto backend) {
    rms_norm_backward<T>(backend, in.shape, get_rows<const T>(g), get_rows<const T>(in.x),
                         get_data_or_null<Compute<T>>(in.weight), get_rows<const T>(in.gate),
                         get_data_or_null<T>(gx), get_data_or_null<Compute<T>>(gweight),
                         get_data_or_null<T>(ggate));
  });
}

Gradients compute_gradients(const char* op, const NormInputs& in, const Tensor& gradient,
                            NeededGradients needs) {
  Tensor gx, gweight, ggate;
  const auto allocate = [](const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); };
  if (needs[0]) gx = allocate(in.x);
  Gradients gradients{gx};
  if (in.weight.defined()) {
    if (needs[1]) gweight = allocate(in.weight);
    gradients.push_back(gweight);
  }
  if (in.gate.defined()) {
    if (needs[static_cast<int>(gradients.size())]) ggate = allocate(in.gate);
    gradients.push_back(ggate);
  }
  run_backward(op, in, gradient, gx, gweight, ggate);
  return gradients;
}

Tensor normalize(const char* op, NormInputs in) {
  in = make_rows_strided(in);
  const Tensor y = Tensor::empty(in.x.shape(), in.x.dtype(), in.x.device());
  run_forward(op, in, y);
  const std::vector<Tensor> inputs = in.list_defined();
  for (Tensor* tensor : {&in.x, &in.weight, &in.gate})
    if (tensor->defined()) *tensor = detach(*tensor);
  return record(op, y, inputs, [op, in](const Tensor& gradient, NeededGradients needs) {
    return compute_gradients(op, in, gradient, needs);
  });
}

void normalize_into(const char* op, const NormInputs& in, const Tensor& out) {
  check_defined(op, "out", out);
  const bool rounds = out.dtype() == DType::bfloat16 && in.x.dtype() == DType::float32;
  check(
      out.shape() == in.x.shape() && (out.dtype() == in.x.dtype() || rounds) && out.device() == in.x.device(),
      op, "out ", name_of(out.dtype()), " ", out.shape(), " does not match x ", name_of(in.x.dtype()), " ",
      in.x.shape());
  for (const Tensor* tensor : {&in.x, &in.gate, &out})
    check(!tensor->defined() || find_row_strides(*tensor), op,
          "the rows of x, gate and out need at most two "
          "strides and contiguous elements");
  check(!in.weight.defined() || in.weight.is_contiguous(), op, "the weight must be contiguous");
  dispatch_float_or_double(op, in.x, [&]<class T>(auto backend) {
    const auto run = [&]<class O>(O) {
      rms_norm_forward<T, O>(backend, in.shape, get_rows<const T>(in.x), get_data_or_null<T>(in.weight),
                             get_rows<const T>(in.gate), get_rows<O>(out));
    };
    if constexpr (std::is_same_v<T, float>)
      if (rounds) return run(BFloat16{});
    run(T{});
  });
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNormOptions& options) {
  return normalize(kRmsNorm, prepare(kRmsNorm, x, weight, options));
}

Tensor l2_norm(const Tensor& x, double scale, double eps) {
  return normalize(kL2Norm, prepare_l2(kL2Norm, x, scale, eps));
}

void rms_norm_forward_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options,
                           const Tensor& out) {
  const NormInputs in = make_rows_strided(prepare(kRmsNorm, x, weight, options));
  check_result_tensor(kRmsNorm, "out", out, x.shape(), x.dtype());
  run_forward(kRmsNorm, in, out);
}

void rms_norm_backward_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options,
                            const Tensor& gradient, const Gradients& gradients) {
  const NormInputs in = make_rows_strided(prepare(kRmsNorm, x, weight, options));
  check_gradient(kRmsNorm, gradient, x);
  check_gradients(kRmsNorm, gradients, {&x, &weight, &options.gate});
  for (const Tensor& g : gradients)
    check(!g.defined() || g.is_contiguous(), kRmsNorm, "the gradients must be contiguous");
  run_backward(kRmsNorm, in, gradient, gradients[0], gradients[1], gradients[2]);
}

void rms_norm_into(const Tensor& x, const Tensor& weight, const RmsNormOptions& options, const Tensor& out) {
  normalize_into("rms_norm_into", prepare("rms_norm_into", x, weight, options), out);
}

void l2_norm_in_place(const Tensor& x, double scale, double eps) {
  normalize_into("l2_norm_in_place", prepare_l2("l2_norm_in_place", x, scale, eps), x);
}

}  // namespace tapeformer
