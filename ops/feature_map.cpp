#include "ops/feature_map.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/feature_map_functions.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "apply_feature_map";

void compute_features(FeatureMap map, const Tensor& x, const Tensor& y) {
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    visit_feature_map(
        map, [&](auto phi) { unary_forward<decltype(phi)>(backend, x.data<T>(), y.data<T>(), x.numel()); });
  });
}

}  // namespace

Tensor apply_feature_map(FeatureMap map, const Tensor& input) {
  check_defined(kOp, "x", input);
  const Tensor x = contiguous(input), y = Tensor::empty_like(x);
  compute_features(map, x, y);
  // The derivative of a feature map depends only on y, so the tape does not keep x.
  return record(kOp, y, {&x}, [map, y = detach(y)](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient), gx = Tensor::empty_like(y);
    dispatch_float_or_double(kOp, y, [&]<class T>(auto backend) {
      visit_feature_map(map, [&](auto phi) {
        unary_backward<decltype(phi)>(backend, g.data<T>(), y.data<T>(), y.data<T>(), gx.data<T>(),
                                      y.numel());
      });
    });
    return Gradients{gx};
  });
}

void apply_feature_map_in_place(FeatureMap map, const Tensor& x) {
  check_defined(kOp, "x", x);
  check(x.is_contiguous(), kOp, "x ", x.shape(), " must be contiguous");
  compute_features(map, x, x);
}

}  // namespace tapeformer
