#include "ops/inference.h"

#include "ops/kernels/elementwise.h"
#include "ops/kernels/index.h"
#include "ops/kernels/linear.h"
#include "ops/kernels/norm.h"
#include "ops/norm.h"

namespace tapeformer {

void embed_into(const Tensor& table, const Tensor& tokens, const Tensor& positions, int64_t position,
                const Tensor& out, const Tensor& added) {
  const int64_t value_dim = table.size(1), position_dim = positions.size(1), batch = tokens.numel();
  check(out.shape() == Shape{batch, value_dim + position_dim}, "embed_into", "out ", out.shape(), " for ",
        batch, " tokens of width ", value_dim + position_dim);
  check(position >= 0 && position < positions.size(0), "embed_into", "position ", position,
        " is beyond the longest sequence, ", positions.size(0));
  check(!added.defined() || (added.shape() == Shape{added.size(0), out.size(1)} && added.is_contiguous() &&
                             position < added.size(0)),
        "embed_into", "added ", added.defined() ? added.shape() : Shape{}, " at position ", position,
        " of out ", out.shape());
  visit_floating("embed_into", table.dtype(), [&](auto tag) {
    using T = decltype(tag);
    visit_index("embed_into", tokens.dtype(), [&](auto index_tag) {
      using Index = decltype(index_tag);
      const auto run = [&](auto kernel) {
        kernel(table.data<T>(), table.size(0), tokens.data<Index>(), positions.data<T>(),
               added.defined() ? added.data<T>() : nullptr, position, out.data<T>(), batch, value_dim,
               position_dim);
      };
      on_device(
          table.device(), "embed_into", [&] { run([](auto... a) { cpu::embed_rows<T, Index>(a...); }); },
          [&] { run([](auto... a) { cuda::embed_rows<T, Index>(a...); }); });
    });
  });
}

DecodingLinear::DecodingLinear(const Tensor& weight, const Tensor& bias, int64_t rows)
    : weight_(weight), bias_(bias) {
  const LinearShape shape{rows, weight.size(1), weight.size(0)};
  if (rows < cpu::fewest_packed_rows()) return;
  if (!weight.device().is_cpu()) return;  // cuBLAS reads the weight as it is
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
  const LinearShape shape{x.size(0), weight_.size(1), weight_.size(0)};
  check(x.size(1) == shape.in && out.shape() == Shape{shape.rows, shape.out}, "DecodingLinear", "input ",
        x.shape(), ", weight ", weight_.shape(), ", out ", out.shape());
  check(activation != Activation::gelu || scratch.defined(), "DecodingLinear", "gelu needs scratch memory");
  visit_floating("DecodingLinear", x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      kernel(shape, x.data<T>(), weight_.data<T>(), bias_.data<T>(), activation, DropoutMask{},
             activation == Activation::gelu ? scratch.data<T>() : nullptr, out.data<T>());
    };
    const bool packed = packed_.defined() && shape.rows >= cpu::fewest_packed_rows();
    on_device(
        x.device(), "DecodingLinear",
        [&] {
          run([&](const LinearShape& s, const T* in, const T* weight, const T* bias, Activation f,
                  const DropoutMask& none, T* pre, T* y) {
            if (packed)
              cpu::linear_forward_packed<T>(s, in, packed_.data<T>(), bias, f, pre, y);
            else
              cpu::linear_forward<T, T>(s, in, weight, bias, f, none, pre, y);
          });
        },
        [&] { run([](auto... a) { cuda::linear_forward<T, T>(a...); }); });
  });
}

void layer_norm_into(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                     const Tensor& out) {
  check(x.shape() == out.shape(), "layer_norm_into", "input ", x.shape(), ", out ", out.shape());
  visit_floating("layer_norm_into", x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      kernel(x.size(0), x.size(1), x.data<T>(), branch.defined() ? branch.data<T>() : nullptr, DropoutMask{},
             weight.data<T>(), bias.data<T>(), kLayerNormEps, out.data<T>(), nullptr, nullptr);
    };
    on_device(
        x.device(), "layer_norm_into", [&] { run([](auto... a) { cpu::layer_norm_forward<T, T>(a...); }); },
        [&] { run([](auto... a) { cuda::layer_norm_forward<T, T>(a...); }); });
  });
}

void add_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  check(a.shape() == b.shape() && a.shape() == out.shape(), "add_into", "shapes ", a.shape(), ", ", b.shape(),
        ", ", out.shape());
  visit_floating("add_into", a.dtype(), [&](auto tag) {
    using T = decltype(tag);
    on_device(
        a.device(), "add_into",
        [&] { cpu::binary_forward<Add>(a.data<T>(), b.data<T>(), out.data<T>(), a.numel()); },
        [&] { cuda::binary_forward<Add>(a.data<T>(), b.data<T>(), out.data<T>(), a.numel()); });
  });
}

}  // namespace tapeformer
