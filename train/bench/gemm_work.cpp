#include "train/bench/gemm_work.h"

#include <algorithm>

#include "ops/kernels/gemm.h"

namespace tapeformer {

std::vector<GemmShape> forward_products(const AutoregressiveOptions& model, int64_t rows) {
  const EncoderOptions& e = model.encoder;
  const int64_t width = e.width();
  const int64_t projections = attention_kind(e.attention).capabilities.shared_query_key ? 3 : 4;
  return {
      {"attention projections", rows, width, width, false, true, projections * e.layers},
      {"linear1", rows, e.feedforward, width, false, true, e.layers},
      {"linear2", rows, width, e.feedforward, false, true, e.layers},
      {"predictor", rows, model.outputs(), e.output_width(), false, true, 1},
  };
}

std::vector<GemmShape> training_products(const AutoregressiveOptions& model, int64_t rows) {
  std::vector<GemmShape> all;
  for (const GemmShape& y : forward_products(model, rows)) {
    all.push_back(y);
    all.push_back({y.name + ", dx", y.m, y.k, y.n, false, false, y.count});
    all.push_back({y.name + ", dweight", y.n, y.k, y.m, true, false, y.count});
  }
  return all;
}

double total_flops(const std::vector<GemmShape>& products) {
  double total = 0;
  for (const GemmShape& product : products) total += product.flops();
  return total;
}

double attention_flops(const AutoregressiveOptions& model, int64_t length) {
  const EncoderOptions& e = model.encoder;
  const auto dim = static_cast<double>(e.head_dim);
  const double keys = e.attention == "linear" ? dim : static_cast<double>(length) / 2;
  return 4 * dim * keys * static_cast<double>(e.heads * e.layers * length);
}

GemmWork::GemmWork(std::vector<GemmShape> products, Device device) : products_(std::move(products)) {
  int64_t a = 1, b = 1, c = 1;
  for (const GemmShape& p : products_) {
    a = std::max(a, p.m * p.k);
    b = std::max(b, p.n * p.k);
    c = std::max(c, p.m * p.n);
  }
  a_ = Tensor::full({a}, 0.5, DType::float32, device);
  b_ = Tensor::full({b}, 0.25, DType::float32, device);
  c_ = Tensor::zeros({c}, DType::float32, device);
}

void GemmWork::run(const GemmShape& p) const {
  Gemm<float> product;
  product.transpose_a = p.transpose_a;
  product.transpose_b = p.transpose_b;
  product.m = p.m;
  product.n = p.n;
  product.k = p.k;
  product.lda = p.transpose_a ? p.m : p.k;
  product.ldb = p.transpose_b ? p.k : p.n;
  product.ldc = p.n;
  const auto run = [&](auto kernel) {
    product.a = a_.data<float>();
    product.b = b_.data<float>();
    product.c = c_.data<float>();
    for (int64_t i = 0; i < p.count; ++i) kernel(product);
  };
  on_device(
      a_.device(), "GemmWork", [&] { run(cpu::gemm<float>); }, [&] { run(cuda::gemm<float>); });
}

void GemmWork::run() const {
  for (const GemmShape& product : products_) run(product);
}

}  // namespace tapeformer
