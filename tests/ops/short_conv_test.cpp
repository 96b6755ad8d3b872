#include "ops/short_conv.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/allocator.h"
#include "ops/conv1d.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/lengths.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Computes short_conv() by its definition.
Tensor convolve_slowly(const Tensor& x, const Tensor& weight, const ShortConvOptions& o) {
  const int64_t batch = x.size(0), length = x.size(1), channels = x.size(2), kernel = weight.size(1);
  const Tensor y = Tensor::zeros(x.shape(), DType::float64);
  const auto sequence_of = [&](int64_t b, int64_t t) {
    int64_t count = 0;
    for (int64_t u = 0; u <= t; ++u)
      count += o.boundaries.defined() ? o.boundaries.data<int64_t>()[b * length + u] : 0;
    return count;
  };
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t valid = o.lengths.defined() ? o.lengths.data<int64_t>()[b] : length;
    for (int64_t t = 0; t < valid; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < kernel; ++j) {
          const int64_t p = t + j - (kernel - 1) + o.lookahead;
          if (p >= valid || (p < 0 && !o.history.defined()) || sequence_of(b, p) != sequence_of(b, t))
            continue;
          sum += weight.data<double>()[c * kernel + j] *
                 (p >= 0 ? x.data<double>()[(b * length + p) * channels + c]
                         : o.history.data<double>()[((b + 1) * (kernel - 1) + p) * channels + c]);
        }
        const double gate = 1 / (1 + std::exp(-sum));
        y.data<double>()[(b * length + t) * channels + c] = o.activation == GateActivation::silu ? sum * gate
                                                            : o.activation == GateActivation::sigmoid ? gate
                                                                                                      : sum;
      }
  }
  return y;
}

Tensor boundaries_of(const std::vector<std::vector<int64_t>>& starts, int64_t length) {
  const Tensor boundaries = Tensor::zeros({static_cast<int64_t>(starts.size()), length}, DType::int64);
  for (size_t b = 0; b < starts.size(); ++b)
    for (const int64_t t : starts[b]) boundaries.data<int64_t>()[static_cast<int64_t>(b) * length + t] = 1;
  return boundaries;
}

std::vector<ShortConvOptions> list_options(int64_t batch, int64_t length, int64_t kernel, int64_t channels) {
  std::vector<ShortConvOptions> all;
  const std::vector<int64_t> counts{length, 0, length / 2};
  const Tensor boundaries = boundaries_of({{0, 2}, {length - 1}, {1, 2, length / 2}}, length);
  for (const int64_t lookahead : {int64_t{0}, kernel / 2, kernel - 1})
    for (const GateActivation activation : {GateActivation::none, GateActivation::silu})
      for (const bool with_lengths : {false, true})
        for (const bool with_boundaries : {false, true}) {
          ShortConvOptions options{.lookahead = lookahead, .activation = activation};
          if (with_lengths) options.lengths = lengths(counts);
          if (with_boundaries) options.boundaries = boundaries;
          if (lookahead == 0 && (with_lengths || with_boundaries))
            options.history = normal({batch, kernel - 1, channels}, 7);
          all.push_back(options);
        }
  return all;
}

ShortConvOptions on_device(ShortConvOptions options, Device device, DType dtype) {
  for (Tensor* tensor : {&options.lengths, &options.boundaries})
    if (tensor->defined()) *tensor = tensor->to(device);
  if (options.history.defined()) options.history = options.history.to(dtype).to(device);
  return options;
}

}  // namespace

TEST_CASE("short_conv equals its definition") {
  for (const Device device : list_devices())
    for (const int64_t kernel : {1, 2, 4, 5, 16, 32})
      for (const auto& size : {std::pair<int64_t, int64_t>{9, 3}, {70, 37}}) {
        const int64_t length = size.first, channels = size.second;
        CAPTURE(kernel);
        CAPTURE(length);
        const Tensor x = normal({3, length, channels}, 1), weight = normal({channels, kernel}, 2);
        for (const ShortConvOptions& options : list_options(3, length, kernel, channels)) {
          const Tensor exact = convolve_slowly(x, weight, options);
          const Tensor found =
              short_conv(x.to(device), weight.to(device), on_device(options, device, DType::float64));
          CHECK(max_difference(found, exact) < 1e-12);
        }
      }
}

// With s the sums before the activation and h = g * activation'(s), the gradients of x, weight and history
// are the adjoints of the definition: <h, conv(dx, weight)> = <gx, dx>, and so on.
TEST_CASE("gradients of short_conv are adjoint to its definition") {
  constexpr int64_t kBatch = 3, kLength = 150, kChannels = 19;
  const auto dot = [](const Tensor& a, const Tensor& b) {
    double sum = 0;
    for (int64_t i = 0; i < a.numel(); ++i) sum += a.data<double>()[i] * b.data<double>()[i];
    return sum;
  };
  for (const Device device : list_devices())
    for (const int64_t kernel : {1, 4, 5, 29, 32})
      for (const ShortConvOptions& options : list_options(kBatch, kLength, kernel, kChannels)) {
        CAPTURE(kernel);
        CAPTURE(options.lookahead);
        const Tensor x = normal({kBatch, kLength, kChannels}, 1), weight = normal({kChannels, kernel}, 2),
                     g = normal(x.shape(), 3);
        const Tensor dx = normal(x.shape(), 4), dweight = normal(weight.shape(), 5);
        ShortConvOptions linear = options, no_history = options;
        linear.activation = no_history.activation = GateActivation::none;
        no_history.history = {};
        const Tensor h = g.clone(), sums = convolve_slowly(x, weight, linear);
        for (int64_t i = 0; i < h.numel() && options.activation == GateActivation::silu; ++i) {
          const double gate = 1 / (1 + std::exp(-sums.data<double>()[i]));
          h.data<double>()[i] *= gate + sums.data<double>()[i] * gate * (1 - gate);
        }
        ShortConvOptions leaves = on_device(options, device, DType::float64);
        const Tensor x_leaf = set_requires_grad(x.to(device).alias()),
                     weight_leaf = set_requires_grad(weight.to(device).alias());
        if (leaves.history.defined()) leaves.history = set_requires_grad(leaves.history.alias());
        backward(short_conv(x_leaf, weight_leaf, leaves), g.to(device));
        CHECK(dot(gradient(x_leaf).to(kCpu), dx) ==
              doctest::Approx(dot(h, convolve_slowly(dx, weight, no_history))).epsilon(1e-10));
        CHECK(dot(gradient(weight_leaf).to(kCpu), dweight) ==
              doctest::Approx(dot(h, convolve_slowly(x, dweight, linear))).epsilon(1e-10));
        if (!leaves.history.defined()) continue;
        linear.history = normal(options.history.shape(), 6);
        CHECK(
            dot(gradient(leaves.history).to(kCpu), linear.history) ==
            doctest::Approx(dot(h, convolve_slowly(Tensor::zeros(x.shape(), DType::float64), weight, linear)))
                .epsilon(1e-10));
      }
}

TEST_CASE("short_conv in bfloat16 has float32 sums") {
  for (const Device device : list_devices()) {
    const Tensor x = normal({3, 70, 37}, 1, DType::bfloat16), weight = normal({37, 4}, 2, DType::float32);
    for (const ShortConvOptions& options : list_options(3, 70, 4, 37)) {
      ShortConvOptions exact = options;
      if (exact.history.defined()) exact.history = exact.history.to(DType::bfloat16).to(DType::float64);
      const Tensor expected = convolve_slowly(x.to(DType::float64), weight.to(DType::float64), exact);
      const Tensor leaf = set_requires_grad(x.to(device).alias());
      const Tensor found = short_conv(leaf, weight.to(device), on_device(options, device, DType::bfloat16));
      CHECK(found.dtype() == DType::bfloat16);
      CHECK(max_difference(found, expected) < 0.004 * 8);
      backward(found, normal(found.shape(), 3, DType::bfloat16).to(device));
      CHECK(gradient(leaf).dtype() == DType::bfloat16);
    }
  }
}

TEST_CASE("short_conv without activation equals conv1d with a diagonal weight") {
  const Tensor x = normal({2, 11, 3}, 1), weight = normal({3, 4}, 2);
  const Tensor diagonal = Tensor::zeros({3, 4, 3}, DType::float64);
  for (int64_t c = 0; c < 3; ++c)
    for (int64_t j = 0; j < 4; ++j)
      diagonal.data<double>()[(c * 4 + j) * 3 + c] = weight.data<double>()[c * 4 + j];
  for (const int64_t lookahead : {0, 1, 3})
    CHECK(max_difference(short_conv(x, weight, {.lookahead = lookahead}),
                         conv1d(x, diagonal, {}, {}, {1, 3 - lookahead, lookahead})) < 1e-13);
}

TEST_CASE("short_conv of pieces with a history equals one pass, and so do the gradients") {
  constexpr int64_t kLength = 13, kChannels = 5, kKernel = 4;
  // Pieces of 7 tokens start at token 7, whose history is tokens 4 to 6.
  const Tensor boundaries = boundaries_of({{4, 8}, {0, 7, 12}}, kLength);
  for (const Device device : list_devices())
    for (const int64_t piece : {1, 2, 3, 7})
      for (const bool with_boundaries : {false, true}) {
        if (with_boundaries && piece != 7) continue;
        CAPTURE(piece);
        const auto run = [&](int64_t step) {
          const Tensor x = set_requires_grad(normal({2, kLength, kChannels}, 1).to(device).alias());
          const Tensor weight = set_requires_grad(normal({kChannels, kKernel}, 2).to(device).alias());
          const Tensor first = set_requires_grad(normal({2, kKernel - 1, kChannels}, 3).to(device).alias());
          ShortConvOptions options{.activation = GateActivation::silu, .history = first};
          std::vector<Tensor> results;
          for (int64_t t = 0; t < kLength; t += step) {
            const int64_t end = std::min(t + step, kLength);
            const Tensor part = slice(x, 1, t, end);
            if (with_boundaries) options.boundaries = slice(boundaries, 1, t, end).clone();
            results.push_back(short_conv(part, weight, options));
            const Tensor read = concat({options.history, part}, 1);
            options.history = slice(read, 1, read.size(1) - (kKernel - 1), read.size(1));
          }
          const Tensor y = concat(results, 1);
          // The gradient of the last history is also propagated.
          const Tensor all = concat({y, options.history}, 1);
          backward(all, normal(all.shape(), 9).to(device));
          return std::vector<Tensor>{detach(all), gradient(x), gradient(weight), gradient(first)};
        };
        const std::vector<Tensor> whole = run(kLength), pieces = run(piece);
        for (size_t i = 0; i < whole.size(); ++i) CHECK(max_difference(whole[i], pieces[i]) < 1e-12);
      }
}

TEST_CASE("short_conv_step equals short_conv and allocates nothing") {
  const NoGradScope no_grad;
  for (const Device device : list_devices())
    for (const DType dtype : {DType::float32, DType::float64})
      for (const int64_t kernel : {1, 3, 4, 32}) {
        constexpr int64_t kTokens = 100, kChannels = 37;
        const Tensor x = normal({2, kTokens, kChannels}, 1, dtype).to(device),
                     weight = normal({kChannels, kernel}, 2, dtype).to(device);
        const Tensor expected = short_conv(x, weight, {.activation = GateActivation::silu});
        const Tensor history = Tensor::zeros({2, kernel - 1, kChannels}, dtype, device);
        const Tensor found = Tensor::empty_like(x);
        const auto step = [&](int64_t t) {
          short_conv_step(slice(x, 1, t, t + 1).view({2, kChannels}, {kTokens * kChannels, 1}), weight,
                          GateActivation::silu, history,
                          slice(found, 1, t, t + 1).view({2, kChannels}, {kTokens * kChannels, 1}));
        };
        step(0);
        get_device_allocator(device).reset_peak();
        const int64_t active = get_device_allocator(device).stats().active_bytes;
        for (int64_t t = 1; t < kTokens; ++t) step(t);
        CHECK(get_device_allocator(device).stats().peak_bytes == active);
        // The two may round the sums of `kernel` terms differently.
        const double rounding = static_cast<double>(kernel) * (dtype == DType::float32 ? 1e-6 : 1e-14);
        CHECK(max_difference(found, expected) < rounding);
        CHECK(max_difference(history, slice(x, 1, kTokens - (kernel - 1), kTokens).clone()) == 0);
      }
}

TEST_CASE("results of short_conv do not depend on tokens out of reach, not even on NaN") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Device device : list_devices())
    for (const int64_t lookahead : {0, 2}) {
      const Tensor x = normal({1, 20, 5}, 1), weight = normal({5, 4}, 2).to(device), changed = x.clone();
      for (int64_t i = 10 * 5; i < 15 * 5; ++i) changed.data<double>()[i] = nan;
      const ShortConvOptions options{.lookahead = lookahead,
                                     .activation = GateActivation::silu,
                                     .lengths = lengths({15}),
                                     .boundaries = boundaries_of({{5}}, 20)};
      const auto run = [&](const Tensor& input) {
        const Tensor leaf = set_requires_grad(input.to(device).alias());
        const Tensor y = short_conv(leaf, weight, options);
        backward(y, normal(y.shape(), 5).to(device));
        auto values = detach(y).to_vector();
        for (const double value : gradient(leaf).to_vector()) values.push_back(value);
        return values;
      };
      const auto before = run(x), after = run(changed);
      for (size_t i = 0; i < before.size(); ++i) {
        const auto token = static_cast<int64_t>(i / 5 % 20);
        // Results at 10 - lookahead and later read changed tokens. Gradients of inputs whose readers are such
        // results also change.
        const bool is_result = i < 100;
        const bool unchanged = token < (is_result ? 10 - lookahead : 7 - lookahead) || token >= 15;
        if (unchanged) CHECK(before[i] == after[i]);
        if (token >= 15) CHECK(after[i] == 0);
        if (is_result && token >= 10 && token < 15) CHECK(std::isnan(after[i]));
      }
    }
}

TEST_CASE("short_conv of empty inputs is empty and has zero gradients") {
  for (const Device device : list_devices())
    for (const Shape& shape : {Shape{0, 3, 5}, Shape{2, 0, 5}, Shape{2, 3, 0}}) {
      const Tensor x = set_requires_grad(normal(shape).to(device).alias()),
                   weight = set_requires_grad(normal({shape[2], 4}).to(device).alias()),
                   history = set_requires_grad(normal({shape[0], 3, shape[2]}, 1).to(device).alias());
      const Tensor y = short_conv(x, weight, {.history = history});
      CHECK(y.shape() == shape);
      backward(y, Tensor::zeros(shape, DType::float64, device));
      for (const double value : gradient(weight).to_vector()) CHECK(value == 0);
      for (const double value : gradient(history).to_vector()) CHECK(value == 0);
    }
}

TEST_CASE("errors about arguments of short_conv contain the mismatched shapes") {
  const Tensor x = normal({2, 5, 3}), weight = normal({3, 4});
  CHECK_THROWS_WITH_AS(short_conv(x, normal({2, 4})),
                       "short_conv: the weight float64 (2, 4) (channels, kernel) does not match x float64 "
                       "(2, 5, 3)",
                       ShapeError);
  CHECK_THROWS_AS(short_conv(normal({5, 3}), weight), ShapeError);
  CHECK_THROWS_AS(short_conv(x, weight.to(DType::float32)), ShapeError);
  CHECK_THROWS_WITH(short_conv(x, normal({3, 33})), "short_conv: the kernel must have 1 to 32 taps, not 33");
  CHECK_THROWS_WITH(short_conv(x, weight, {.lookahead = 4}), "short_conv: the lookahead 4 is not in [0, 4)");
  CHECK_THROWS_WITH(short_conv(x, weight, {.lookahead = 1, .history = normal({2, 3, 3})}),
                    "short_conv: a history requires a lookahead of 0, not 1");
  CHECK_THROWS_WITH(
      short_conv(x, weight, {.history = normal({2, 4, 3})}),
      "short_conv: the history is float64 (2, 4, 3), expected float64 (2, 3, 3) on the device of "
      "x");
  CHECK_THROWS_WITH(short_conv(x, weight, {.boundaries = Tensor::zeros({2, 4}, DType::int64)}),
                    "short_conv: boundaries (2, 4) do not match x (2, 5, 3): expected (batch, length)");
  CHECK_THROWS_AS(short_conv(x, weight, {.boundaries = Tensor::full({2, 5}, 2, DType::int64)}), ShapeError);
  CHECK_THROWS_AS(short_conv(x, weight, {.lengths = lengths({5, 6})}), ShapeError);
  const Tensor token = normal({2, 3}), out = Tensor::empty_like(token);
  CHECK_THROWS_AS(short_conv_step(token, weight, GateActivation::none, normal({2, 4, 3}), out), ShapeError);
  CHECK_THROWS_AS(short_conv_step(token, weight, GateActivation::none, normal({2, 3, 3}), x), ShapeError);
  CHECK_THROWS_AS(
      short_conv_step(token, weight, GateActivation::none, normal({2, 3, 3}, 0, DType::float32), out),
      ShapeError);
}
