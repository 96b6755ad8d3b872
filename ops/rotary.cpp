#include "ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/rotary.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "rotary";
constexpr const char* kRotaryStep = "rotate_token_in_place";

int64_t count_rotated_features(const Tensor& x, const RotaryOptions& options) {
  return options.features > 0 ? options.features : x.size(-1);
}

void check_scaling(const char* op, const RotaryScaling& s) {
  if (s.kind == RotaryScalingKind::none) return;
  check(s.factor > 0, op, "factor ", s.factor, " must be positive");
  check(s.amplitude >= 0, op, "amplitude ", s.amplitude, " must not be negative");
  if (s.kind == RotaryScalingKind::linear) return;
  check(s.length > 0, op, "length ", s.length, " must be positive");
  check(s.slow > 0 && s.fast > s.slow, op, "expected 0 < slow < fast, got slow ", s.slow, " and fast ",
        s.fast);
}

void check_options(const char* op, const Tensor& x, const RotaryOptions& options) {
  const int64_t rotated = count_rotated_features(x, options);
  check(rotated % 2 == 0 && rotated <= x.size(-1), op, rotated, " rotated features of ", x.shape(),
        " must be even and at most the last dimension");
  check(options.base > 1, op, "base must be greater than 1, not ", options.base);
  check(options.first_position >= 0, op, "first_position ", options.first_position, " must not be negative");
  check_scaling(op, options.scaling);
}

constexpr double kTurn = 2 * std::numbers::pi;

// Returns the index of the pair, as a real number, that makes `turns` turns in `length` tokens.
double find_pair(double turns, const RotaryOptions& options, int64_t rotated) {
  return static_cast<double>(rotated) *
         std::log(static_cast<double>(options.scaling.length) / (turns * kTurn)) /
         (2 * std::log(options.base));
}

RotaryScale make_scale(const RotaryOptions& options, int64_t rotated) {
  const RotaryScaling& s = options.scaling;
  if (s.kind == RotaryScalingKind::none) return {};
  RotaryScale scale{.inverse_factor = 1 / s.factor, .constant = 0};
  if (s.kind == RotaryScalingKind::llama3) {
    scale.per_angle = static_cast<double>(s.length) / (kTurn * (s.fast - s.slow));
    scale.constant = -s.slow / (s.fast - s.slow);
  }
  if (s.kind == RotaryScalingKind::yarn) {
    constexpr double kSmallestWidth = 1e-3;  // of a ramp whose ends are equal
    const double first = std::max(std::floor(find_pair(s.fast, options, rotated)), 0.0);
    const double last =
        std::min(std::ceil(find_pair(s.slow, options, rotated)), static_cast<double>(rotated - 1));
    scale.per_pair = -1 / (first == last ? kSmallestWidth : last - first);
    scale.constant = 1 - first * scale.per_pair;
  }
  return scale;
}

double get_amplitude(const RotaryScaling& s) {
  if (s.kind != RotaryScalingKind::yarn) return 1;
  return s.amplitude > 0 ? s.amplitude : s.factor > 1 ? 1 + 0.1 * std::log(s.factor) : 1;
}

Tensor rotate(const Tensor& x, const RotaryOptions& options, bool inverse) {
  const RotaryShape shape{.batch = x.size(0),
                          .length = x.size(1),
                          .heads = x.size(2),
                          .dim = x.size(3),
                          .rotated = count_rotated_features(x, options),
                          .first_position = options.first_position,
                          .base = options.base,
                          .scale = make_scale(options, count_rotated_features(x, options)),
                          .amplitude = get_amplitude(options.scaling),
                          .inverse = inverse};
  const Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch_floating(kOp, x, [&]<class T>(auto backend) {
    rotate_pairs(backend, shape, get_attention_rows<const T>(x), get_attention_rows<T>(out));
  });
  return out;
}

}  // namespace

std::vector<double> compute_rotary_angles(const RotaryOptions& options, int64_t features) {
  check_scaling(kOp, options.scaling);
  std::vector<double> angles;
  for (int64_t pair = 0; 2 * pair < features; ++pair)
    angles.push_back(compute_rotary_angle(options.base, make_scale(options, features), pair, features));
  return angles;
}

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
  check_defined(kRotaryStep, "x", x);
  check(x.rank() == 3 && x.strides()[2] == 1, kRotaryStep, "x ", x.shape(),
        " must be (batch, heads, dim) with a contiguous last dimension");
  check_options(kRotaryStep, x, options);
  const RotaryShape shape{.batch = x.size(0),
                          .length = 1,
                          .heads = x.size(1),
                          .dim = x.size(2),
                          .rotated = count_rotated_features(x, options),
                          .first_position = options.first_position,
                          .base = options.base,
                          .scale = make_scale(options, count_rotated_features(x, options)),
                          .amplitude = get_amplitude(options.scaling),
                          .inverse = false,
                          .advances_in_graphs = true};
  dispatch_floating(kRotaryStep, x, [&]<class T>(auto backend) {
    rotate_pairs(backend, shape, get_attention_rows<const T>(x), get_attention_rows<T>(x));
  });
}

}  // namespace tapeformer
