#include <cmath>

#include "ops/elementwise.h"
#include "ops/gated_activation.h"
#include "ops/rms_norm.h"
#include "ops/short_conv.h"
#include "ops/split.h"
#include "ops/view.h"
#include "tests/support/lengths.h"
#include "tests/support/op_table.h"
#include "tests/support/random.h"

namespace tapeformer::test {
namespace {

using Inputs = std::vector<Tensor>;

Tensor random_boundaries(const Shape& shape) {
  const Tensor boundaries = Tensor::empty(shape, DType::int64);
  const RandomStream stream(11, "boundaries");
  const double probability = shape[1] > 100 ? 0.01 : 0.2;  // long sequences have complete tiles of tokens
  for (int64_t i = 0; i < boundaries.numel(); ++i)
    boundaries.data<int64_t>()[i] = stream.uniform(static_cast<uint64_t>(i)) < probability;
  return boundaries;
}

void add_short_conv(std::vector<OpCase>& table) {
  const auto add = [&](const Shape& shape, int64_t kernel, ShortConvOptions options,
                       const std::vector<int64_t>& counts = {}, bool is_large = false) {
    Inputs inputs{normal(shape, 1), normal({shape[2], kernel}, 2), lengths(counts),
                  random_boundaries({shape[0], shape[1]})};
    if (counts.empty()) inputs[2] = Tensor::full({shape[0]}, static_cast<double>(shape[1]), DType::int64);
    if (options.lookahead == 0) inputs.push_back(normal({shape[0], kernel - 1, shape[2]}, 3));
    const auto function = [options](const Inputs& in) {
      ShortConvOptions all = options;
      all.lengths = in[2], all.boundaries = in[3];
      if (in.size() > 4) all.history = in[4];
      return short_conv(in[0], in[1], all);
    };
    const std::string name = concat_text(", kernel ", kernel, ", lookahead ", options.lookahead,
                                         ", activation ", static_cast<int>(options.activation), ", ", shape);
    const double factor = std::sqrt(static_cast<double>(shape[0] * shape[1] + 1));
    table.push_back({"short_conv" + name, function, inputs, is_large, factor});
    table.back().optional_inputs = {2, 3};
    if (inputs.size() > 4) table.back().optional_inputs.push_back(4);
  };
  for (const GateActivation activation :
       {GateActivation::none, GateActivation::silu, GateActivation::sigmoid}) {
    for (const int64_t lookahead : {0, 2, 3})
      add({3, 7, 3}, 4, {.lookahead = lookahead, .activation = activation}, {7, 0, 5});
    add({2, 3, 2}, 5, {.activation = activation});
  }
  add({2, 3, 2}, 1, {.activation = GateActivation::silu});
  add({1, 2, 1}, 16, {.activation = GateActivation::silu});
  add({2, 0, 3}, 4, {});
  add({2, 150, 37}, 4, {.activation = GateActivation::silu}, {150, 71}, true);
  add({3, 129, 300}, 4, {.lookahead = 1, .activation = GateActivation::silu}, {}, true);
  add({70, 9, 33}, 3, {}, {}, true);
  add({3, 131, 300}, 32, {.activation = GateActivation::silu}, {}, true);
  const Tensor packed = normal({2, 6, 3, 5}, 1);
  table.push_back({"short_conv, x is a slice",
                   [](const Inputs& in) {
                     return short_conv(unbind(in[0], 2)[1], in[1], {.activation = GateActivation::silu});
                   },
                   {packed, normal({5, 4}, 2)}});
  table.push_back({"short_conv, x is transposed",
                   [](const Inputs& in) {
                     return short_conv(permute(in[0], {0, 2, 1}), in[1]);
                   },
                   {normal({2, 3, 7}, 1), normal({3, 4}, 2)}});
}

void add_gated_activations(std::vector<OpCase>& table) {
  for (const Activation activation :
       {Activation::none, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    for (const double p : {0.0, 0.3})
      for (const Shape& shape : {Shape{2, 3, 8}, Shape{5, 2}, Shape{0, 6}, Shape{7, 2 * 1031}})
        table.push_back({concat_text("gated_activation ", static_cast<int>(activation), ", dropout ", p, ", ",
                                     shape.to_string()),
                         [activation, p](const Inputs& in) {
                           return gated_activation(in[0], activation, {p, RandomStream(5, "hidden")});
                         },
                         {normal(shape)},
                         shape.numel() > 1000});
}

void add_splits(std::vector<OpCase>& table) {
  table.push_back({"split, all parts",
                   [](const Inputs& in) {
                     const std::vector<Tensor> parts = split(in[0], 1, {2, 3, 1});
                     return mul(mul(slice(parts[1], 1, 0, 2), parts[0]), parts[2]);
                   },
                   {normal({4, 6, 3})}});
  table.push_back({"unflatten, strides",
                   [](const Inputs& in) {
                     return square(unflatten(permute(in[0], {1, 0, 2}), 1, 3));
                   },
                   {normal({6, 2, 4})}});
  table.push_back({"split, one part is not used",
                   [](const Inputs& in) {
                     return square(split(in[0], -1, {2, 4})[1]);
                   },
                   {normal({4, 6})}});
  table.push_back({"repeat_interleave",
                   [](const Inputs& in) {
                     return square(repeat_interleave(permute(in[0], {1, 0, 2}), 1, 3));
                   },
                   {normal({2, 4, 3})}});
}

void add_norms(std::vector<OpCase>& table) {
  const auto add = [&](int64_t rows, int64_t dim, GateActivation activation, bool is_large = false) {
    table.push_back(
        {concat_text("rms_norm, ", rows, " rows of ", dim, ", activation ", static_cast<int>(activation)),
         [activation](const Inputs& in) {
           return rms_norm(in[0], in[1], {.gate = in[2], .gate_activation = activation, .eps = 0.1});
         },
         {normal({rows, dim}, 1), uniform({dim}, 0.5, 1.5), normal({rows, dim}, 3)},
         is_large,
         std::sqrt(static_cast<double>(rows / 8 + 1))});
    table.back().optional_inputs = {1, 2};
    table.push_back({concat_text("l2_norm, ", rows, " rows of ", dim),
                     [](const Inputs& in) { return l2_norm(in[0], 0.3, 0.1); },
                     {normal({rows, dim}, 1)},
                     is_large});
  };
  for (const int64_t dim : {1, 4, 31, 33})
    for (const GateActivation activation :
         {GateActivation::none, GateActivation::silu, GateActivation::sigmoid})
      add(3, dim, activation);
  add(2, 257, GateActivation::silu, true);
  add(401, 132, GateActivation::silu, true);
  add(3, 1030, GateActivation::sigmoid, true);
  add(0, 33, GateActivation::silu);
  table.push_back({"rms_norm without weight and gate",
                   [](const Inputs& in) { return rms_norm(in[0], {}); },
                   {normal({2, 3, 7})}});
  table.push_back({"rms_norm of a slice, the gate is a slice",
                   [](const Inputs& in) {
                     const std::vector<Tensor> parts = unbind(in[0], 2);
                     return rms_norm(parts[0], in[1], {.gate = parts[2]});
                   },
                   {normal({2, 4, 3, 2, 5}, 1), normal({5}, 2)}});
  table.back().optional_inputs = {1};
  table.push_back({"l2_norm of the transpose",
                   [](const Inputs& in) {
                     return l2_norm(permute(in[0], {2, 0, 1}));
                   },
                   {normal({2, 3, 7}, 1)}});
}

}  // namespace

void add_conv_and_norm_cases(std::vector<OpCase>& table) {
  add_short_conv(table);
  add_gated_activations(table);
  add_splits(table);
  add_norms(table);
}

}  // namespace tapeformer::test
