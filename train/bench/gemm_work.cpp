#include "train/bench/gemm_work.h"

#include <algorithm>
#include <type_traits>

#include "core/device_control.h"
#include "core/dispatch.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/linear.h"
#include "ops/linear.h"

namespace tapeformer {

namespace {

// Computes `p.product_count` products of shape `p`, with elements of type T. The buffers may be larger than
// the matrices.
template <class T, class Backend>
void multiply(Backend backend, const GemmShape& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Gemm<T> product{.transpose_a = p.transpose_a,
                        .transpose_b = p.transpose_b,
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .a = a.data<T>(),
                        .lda = p.transpose_a ? p.m : p.k,
                        .b = b.data<T>(),
                        .ldb = p.transpose_b ? p.k : p.n,
                        .c = c.data<T>(),
                        .ldc = p.n};
  for (int64_t i = 0; i < p.product_count; ++i) gemm(backend, product);
}

// Computes `p.product_count` products of shape `p` on the CPU with the kernels of linear layers. `p` selects
// one of the three products of a linear layer with input x and output y:
// - If `p.transpose_b` is true, the product is y = x weightᵀ.
// - If `p.transpose_a` is true, the product is the gradient of the weight: dweight = dyᵀ x.
// - Otherwise, the product is the gradient of the input: dx = dy weight.
// weight and dweight are float32. dy is the gradient of y.
template <class T>
void multiply_as_linear(const GemmShape& p, const Tensor& a, const Tensor& b, const Tensor& weight,
                        const Tensor& c) {
  const cpu::Backend backend;
  for (int64_t i = 0; i < p.product_count; ++i)
    if (p.transpose_b)
      linear_forward<T, T>(backend, {p.m, p.k, p.n}, a.data<T>(), weight.data<float>(), nullptr,
                           Activation::none, {}, nullptr, c.data<T>());
    else if (p.transpose_a)
      linear_backward<T, T>(backend, {p.k, p.n, p.m}, a.data<T>(), b.data<T>(), nullptr, Activation::none, {},
                            nullptr, nullptr, nullptr, weight.data<float>(), nullptr);
    else
      linear_backward<T, T>(backend, {p.m, p.n, p.k}, a.data<T>(), nullptr, weight.data<float>(),
                            Activation::none, {}, nullptr, nullptr, c.data<T>(), nullptr, nullptr);
}

}  // namespace

std::vector<GemmShape> list_forward_gemms(const AutoregressiveModelOptions& model, int64_t rows) {
  const EncoderOptions& e = model.encoder;
  const int64_t width = e.width();
  int64_t full = 0, keys = 0;  // projections of all heads, and of the heads of keys
  for (int64_t layer = 0; layer < e.layers; ++layer) {
    const AttentionLayerChoice& choice = find_layer_choice(e.attention, layer);
    const UsedAttentionInputs inputs = find_attention_kind(choice.kind).get_used_inputs(choice.options);
    full += inputs.use_queries;
    keys += 1 + inputs.use_keys;
  }
  std::vector<GemmShape> shapes{
      {"query projections", rows, e.attention_width(), width, false, true, full},
      {"key and value projections", rows, e.key_heads() * e.head_dim, width, false, true, keys},
      {"out projections", rows, width, e.attention_width(), false, true, e.layers},
      {"linear1", rows, e.feedforward, width, false, true, (e.gated_feedforward ? 2 : 1) * e.layers},
      {"linear2", rows, width, e.feedforward, false, true, e.layers},
      {"predictor", rows, model.output_width(), e.output_width(), false, true, 1},
  };
  std::erase_if(shapes, [](const GemmShape& shape) { return shape.m * shape.n * shape.k == 0; });
  return shapes;
}

std::vector<GemmShape> list_training_gemms(const AutoregressiveModelOptions& model, int64_t rows) {
  std::vector<GemmShape> all;
  for (const GemmShape& y : list_forward_gemms(model, rows)) {
    all.push_back(y);
    all.push_back({y.name + ", dx", y.m, y.k, y.n, false, false, y.product_count});
    all.push_back({y.name + ", dweight", y.n, y.k, y.m, true, false, y.product_count});
  }
  return all;
}

double sum_flops(const std::vector<GemmShape>& products) {
  double total = 0;
  for (const GemmShape& product : products) total += product.flop_count();
  return total;
}

double sum_elements(const std::vector<GemmShape>& products) {
  double total = 0;
  for (const GemmShape& product : products) total += product.element_count();
  return total;
}

double count_attention_flops(const AutoregressiveModelOptions& model, int64_t length) {
  const EncoderOptions& e = model.encoder;
  double multiply_adds = 0;
  for (int64_t layer = 0; layer < e.layers; ++layer) {
    const AttentionLayerChoice& choice = find_layer_choice(e.attention, layer);
    const AttentionKind& kind = find_attention_kind(choice.kind);
    if (!kind.count_multiply_adds)
      throw ConfigError("attention kind \"" + kind.name +
                        "\" declares no cost (AttentionKind::count_multiply_adds)");
    multiply_adds += kind.count_multiply_adds(choice.options, {length, e.head_dim});
  }
  return 2 * multiply_adds * static_cast<double>(e.heads);
}

DType get_operand_dtype(Device device) {
  return get_precision(device) == Precision::bfloat16 ? DType::bfloat16 : DType::float32;
}

GemmRunner::GemmRunner(std::vector<GemmShape> products, Device device) : products_(std::move(products)) {
  int64_t a = 1, b = 1, c = 1;
  for (const GemmShape& p : products_) {
    a = std::max(a, p.m * p.k);
    b = std::max(b, p.n * p.k);
    c = std::max(c, p.m * p.n);
  }
  const DType dtype = get_operand_dtype(device);
  a_ = Tensor::full({a}, 0.5, dtype, device);
  b_ = Tensor::full({b}, 0.25, dtype, device);
  c_ = Tensor::zeros({c}, dtype, device);
  const bool uses_openblas = dtype == DType::float32 && get_cpu_gemm_library_name().ends_with("OpenBLAS");
  if (device.is_cpu() && !uses_openblas) weight_ = Tensor::full({std::max(b, c)}, 0.25);
}

void GemmRunner::run(const GemmShape& p) const {
  dispatch_floating("GemmRunner", a_, [&]<class T>(auto backend) {
    if constexpr (!std::is_same_v<T, double> && std::is_same_v<decltype(backend), cpu::Backend>)
      if (weight_.defined()) return multiply_as_linear<T>(p, a_, b_, weight_, c_);
    if constexpr (!std::is_same_v<T, BFloat16> || !std::is_same_v<decltype(backend), cpu::Backend>)
      multiply<T>(backend, p, a_, b_, c_);
  });
}

void GemmRunner::run() const {
  for (const GemmShape& product : products_) run(product);
}

}  // namespace tapeformer
