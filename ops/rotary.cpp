#include "ops/rotary.h"

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/rotary.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "rotary";
constexpr const char* kStep = "rotate_token_in_place";

int64_t count_rotated_features(const Tensor& x, const RotaryOptions& options) {
  return options.features > 0 ? options.features : x.size(-1);
}

void check_options(const char* op, const Tensor& x, const RotaryOptions& options) {
  const int64_t rotated = count_rotated_features(x, options);
  check(rotated % 2 == 0 && rotated <= x.size(-1), op, rotated, " rotated features of ", x.shape(),
        " must be even and at most the last dimension");
  check(options.base > 1, op, "base must be greater than 1, not ", options.base);
  check(options.first_position >= 0, op, "first_position ", options.first_position, " must not be negative");
}

Tensor rotate(const Tensor& x, const RotaryOptions& options, bool inverse) {
  const RotaryShape shape{.batch = x.size(0),
                          .length = x.size(1),
                          .heads = x.size(2),
                          .dim = x.size(3),
                          .rotated = count_rotated_features(x, options),
                          .first_position = options.first_position,
                          .base = options.base,
                          .inverse = inverse};
  const Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch_floating(kOp, x, [&]<class T>(auto backend) {
    rotate_pairs(backend, shape, get_attention_rows<const T>(x), get_attention_rows<T>(out));
  });
  return out;
}

}  // namespace

Tensor rotary_embedding(const Tensor& input, const RotaryOptions& options) {
  check_defined(kOp, "x", input);
  check(input.rank() == 4, kOp, "x ", input.shape(), " must be (batch, length, heads, dim)");
  check_options(kOp, input, options);
  const Tensor x = make_features_contiguous(input);
  return record(kOp, rotate(x, options, false), {&x}, [options](const Tensor& gradient) {
    return Gradients{rotate(make_features_contiguous(gradient), options, true)};
  });
}

void rotate_token_in_place(const Tensor& x, const RotaryOptions& options) {
  check_defined(kStep, "x", x);
  check(x.rank() == 3 && x.strides()[2] == 1, kStep, "x ", x.shape(),
        " must be (batch, heads, dim) with a contiguous last dimension");
  check_options(kStep, x, options);
  const RotaryShape shape{.batch = x.size(0),
                          .length = 1,
                          .heads = x.size(1),
                          .dim = x.size(2),
                          .rotated = count_rotated_features(x, options),
                          .first_position = options.first_position,
                          .base = options.base,
                          .inverse = false,
                          .advances_in_graphs = true};
  dispatch_floating(kStep, x, [&]<class T>(auto backend) {
    rotate_pairs(backend, shape, get_attention_rows<const T>(x), get_attention_rows<T>(x));
  });
}

}  // namespace tapeformer
