#include "ops/inference.h"

#include "ops/kernels/elementwise.h"
#include "ops/kernels/index.h"
#include "ops/kernels/linear.h"
#include "ops/kernels/norm.h"
#include "ops/norm.h"

namespace tapeformer {

void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out) {
  const int64_t value_dim = table.size(1), position_dim = positions.size(1), batch = tokens.numel();
  check(out.shape() == Shape{batch, value_dim + position_dim}, "embed_into", "out ", out.shape(), " for ",
        batch, " tokens of width ", value_dim + position_dim);
  check(position >= 0 && position < positions.size(0), "embed_into", "position ", position,
        " is beyond the longest sequence, ", positions.size(0));
  on_device(table.device(), "embed_into", [&] {
    visit_floating("embed_into", table.dtype(), [&](auto tag) {
      using T = decltype(tag);
      visit_index("embed_into", tokens.dtype(), [&](auto index_tag) {
        using Index = decltype(index_tag);
        cpu::embed_rows(table.data<T>(), table.size(0), tokens.data<Index>(),
                        positions.data<T>() + position * position_dim, out.data<T>(), batch, value_dim,
                        position_dim);
      });
    });
  });
}

DecodingLinear::DecodingLinear(const Tensor& weight, const Tensor& bias, int64_t rows)
    : weight_(weight), bias_(bias) {
  const cpu::LinearShape shape{rows, weight.size(1), weight.size(0)};
  if (rows < cpu::fewest_packed_rows()) return;
  on_device(weight.device(), "DecodingLinear", [&] {
    visit_floating("DecodingLinear", weight.dtype(), [&](auto tag) {
      using T = decltype(tag);
      packed_ = Tensor::empty({cpu::packed_weight_size<T>(shape)}, weight.dtype(), weight.device());
      cpu::pack_weight<T>(shape, weight.data<T>(), packed_.data<T>());
    });
  });
}

void DecodingLinear::into(const Tensor& x, Activation activation, const Tensor& out,
                          const Tensor& scratch) const {
  const cpu::LinearShape shape{x.size(0), weight_.size(1), weight_.size(0)};
  check(x.size(1) == shape.in && out.shape() == Shape{shape.rows, shape.out}, "DecodingLinear", "input ",
        x.shape(), ", weight ", weight_.shape(), ", out ", out.shape());
  check(activation != Activation::gelu || scratch.defined(), "DecodingLinear", "gelu needs scratch memory");
  on_device(x.device(), "DecodingLinear", [&] {
    visit_floating("DecodingLinear", x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      T* const pre = activation == Activation::gelu ? scratch.data<T>() : nullptr;
      if (packed_.defined() && shape.rows >= cpu::fewest_packed_rows())
        cpu::linear_forward_packed<T>(shape, x.data<T>(), packed_.data<T>(), bias_.data<T>(), activation, pre,
                                      out.data<T>());
      else
        cpu::linear_forward<T>(shape, x.data<T>(), weight_.data<T>(), bias_.data<T>(), activation, {}, pre,
                               out.data<T>());
    });
  });
}

void layer_norm_into(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                     const Tensor& out) {
  check(x.shape() == out.shape(), "layer_norm_into", "input ", x.shape(), ", out ", out.shape());
  on_device(x.device(), "layer_norm_into", [&] {
    visit_floating("layer_norm_into", x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::layer_norm_forward<T>(x.size(0), x.size(1), x.data<T>(),
                                 branch.defined() ? branch.data<T>() : nullptr, {}, weight.data<T>(),
                                 bias.data<T>(), kLayerNormEps, out.data<T>(), nullptr, nullptr);
    });
  });
}

void add_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  check(a.shape() == b.shape() && a.shape() == out.shape(), "add_into", "shapes ", a.shape(), ", ", b.shape(),
        ", ", out.shape());
  on_device(a.device(), "add_into", [&] {
    visit_floating("add_into", a.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::binary_forward<Add>(a.data<T>(), b.data<T>(), out.data<T>(), a.numel());
    });
  });
}

}  // namespace tapeformer
