#include "tests/support/op_table.h"

#include <cmath>

#include "ops/conv1d.h"
#include "ops/elementwise.h"
#include "ops/feature_map.h"
#include "ops/gumbel.h"
#include "ops/index.h"
#include "ops/linear.h"
#include "ops/logistic_mixture.h"
#include "ops/losses.h"
#include "ops/low_rank.h"
#include "ops/lstm.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/random.h"

namespace tapeformer::test {
namespace {

using Inputs = std::vector<Tensor>;

void add_elementwise(std::vector<OpCase>& table) {
  const Shape shape{3, 31};
  auto unary = [&](const char* name, Tensor (*op)(const Tensor&), const Tensor& x) {
    table.push_back({name, [op](const Inputs& in) { return op(in[0]); }, {x}});
  };
  unary("neg", neg, normal(shape));
  unary("exp", exp, normal(shape));
  unary("log", log, uniform(shape, 0.2, 3));
  unary("sqrt", sqrt, uniform(shape, 0.2, 3));
  unary("square", square, normal(shape));
  unary("relu", relu, away_from_zero(shape));
  unary("gelu", gelu, normal(shape));
  unary("elu", elu, away_from_zero(shape));
  unary("sigmoid", sigmoid, normal(shape));
  unary("silu", silu, normal(shape));
  unary("tanh", tanh, normal(shape));
  unary("softplus", softplus, normal(shape));
  auto binary = [&](const char* name, Tensor (*op)(const Tensor&, const Tensor&), const Tensor& a,
                    const Tensor& b) {
    table.push_back({name, [op](const Inputs& in) { return op(in[0], in[1]); }, {a, b}});
  };
  binary("add", add, normal(shape, 1), normal(shape, 2));
  binary("sub, broadcast", sub, normal({4, 1, 3}, 1), normal({5, 1}, 2));
  binary("mul, broadcast", mul, normal({3}, 1), normal({2, 1}, 2));
  binary("div", div, normal(shape, 1), away_from_zero(shape, 2));
  binary("add, scalar", add, normal({}, 1), normal({2, 3}, 2));
  table.push_back(
      {"mul and add of a number", [](const Inputs& in) { return add(mul(in[0], -1.5), 2); }, {normal({33})}});
  table.push_back({"dropout",
                   [](const Inputs& in) {
                     return dropout(in[0], {0.4, RandomStream(3, "drop")});
                   },
                   {normal({3, 45})}});
  table.push_back(
      {"Gumbel noise",
       [](const Inputs& in) { return square(add_gumbel_noise(in[0], RandomStream(3, "noise"), 5)); },
       {normal({3, 45})}});
  table.push_back({"elementwise, zero length",
                   [](const Inputs& in) { return mul(exp(in[0]), in[0]); },
                   {normal({0, 3})}});
}

void add_feature_maps(std::vector<OpCase>& table) {
  for (const FeatureMap map : {FeatureMap::elu_plus_one, FeatureMap::relu, FeatureMap::squared_relu,
                               FeatureMap::exponential, FeatureMap::identity})
    table.push_back({concat_text("feature map ", static_cast<int>(map)),
                     [map](const Inputs& in) {
                       return apply_feature_map(map, permute(in[0], {1, 0, 2}));
                     },
                     {away_from_zero({3, 5, 7})}});
}

void add_views(std::vector<OpCase>& table) {
  const Tensor x = normal({2, 3, 5});
  table.push_back({"reshape", [](const Inputs& in) { return square(reshape(in[0], {5, -1})); }, {x}});
  table.push_back({"permute", [](const Inputs& in) { return square(permute(in[0], {2, 0, 1})); }, {x}});
  table.push_back({"transpose and reshape",
                   [](const Inputs& in) { return square(reshape(transpose(in[0], 0, -1), {-1})); },
                   {x}});
  table.push_back(
      {"slice", [](const Inputs& in) { return square(slice(slice(in[0], 1, 1, 3), -1, -4, -1)); }, {x}});
  table.push_back({"slice, empty", [](const Inputs& in) { return square(slice(in[0], 1, 2, 2)); }, {x}});
  table.push_back({"pad", [](const Inputs& in) { return square(pad(in[0], -2, 1, 4)); }, {x}});
  table.push_back({"pad, strides",
                   [](const Inputs& in) {
                     return square(pad(permute(in[0], {2, 0, 1}), 0, 2, 0));
                   },
                   {x}});
  table.push_back({"pad, empty", [](const Inputs& in) { return pad(slice(in[0], 1, 1, 1), 1, 1, 1); }, {x}});
  for (const int64_t size : {1, 2, 3, 7})
    table.push_back({concat_text("split_into_blocks, blocks of ", size),
                     [size](const Inputs& in) { return square(split_into_blocks(in[0], 1, size)); },
                     {x}});
  table.push_back({"broadcast_to",
                   [](const Inputs& in) {
                     return square(broadcast_to(in[0], {4, 2, 3, 5}));
                   },
                   {normal({3, 1})}});
  table.push_back({"concat",
                   [](const Inputs& in) {
                     return square(concat({in[0], in[1], in[0]}, 1));
                   },
                   {x, normal({2, 1, 5}, 2)}});
  table.push_back({"stack",
                   [](const Inputs& in) {
                     return square(stack({in[0], in[1]}, 1));
                   },
                   {x, normal({2, 3, 5}, 2)}});
  const Tensor index =
      Tensor::from_vector<int64_t>({2, 0, 0, 1, 2, 2, 1, 1, 0, 2, 1, 0, 0, 0, 1, 2, 1, 1, 0, 2}, {2, 2, 5});
  table.push_back({"gather", [](const Inputs& in) { return square(gather(in[0], 1, in[1])); }, {x, index}});
  table.push_back({"scatter_add",
                   [](const Inputs& in) { return square(scatter_add(in[0], 1, in[2], in[1])); },
                   {x, normal({2, 2, 5}, 3), index}});
  const Tensor rows = Tensor::from_vector<uint8_t>({3, 0, 3, 1}, {2, 2});
  table.push_back({"embedding",
                   [](const Inputs& in) { return square(embedding(in[0], in[1])); },
                   {normal({4, 7}), rows}});
  table.push_back({"scatter_rows",
                   [](const Inputs& in) { return square(scatter_rows(in[0], in[1], 5)); },
                   {normal({2, 2, 7}), rows}});
}

void add_reductions(std::vector<OpCase>& table) {
  const Tensor x = normal({3, 7, 5});
  for (int dim = 0; dim < 3; ++dim) {
    const std::string suffix = ", dimension " + std::to_string(dim);
    table.push_back({"sum" + suffix, [dim](const Inputs& in) { return square(sum(in[0], dim)); }, {x}});
    table.push_back(
        {"mean" + suffix, [dim](const Inputs& in) { return square(mean(in[0], dim, true)); }, {x}});
    table.push_back({"max" + suffix, [dim](const Inputs& in) { return square(max(in[0], dim)); }, {x}});
  }
  table.push_back({"sum of all", [](const Inputs& in) { return square(sum(in[0])); }, {x}});
  table.push_back({"mean of all", [](const Inputs& in) { return square(mean(in[0])); }, {x}});
  table.push_back({"softmax", [](const Inputs& in) { return softmax(in[0]); }, {x}});
  table.push_back({"log_softmax", [](const Inputs& in) { return log_softmax(in[0]); }, {x}});
  table.push_back({"logsumexp", [](const Inputs& in) { return logsumexp(in[0]); }, {x}});
  const Tensor targets = Tensor::from_vector<int64_t>({0, 4, 2, 2, 1}, {5});
  const Tensor weights = Tensor::from_vector<uint8_t>({1, 1, 0, 1, 0}, {5});
  table.push_back({"cross_entropy",
                   [](const Inputs& in) { return cross_entropy(in[0], in[1]); },
                   {normal({5, 6}), targets}});
  table.push_back({"cross_entropy, label smoothing and z-loss",
                   [](const Inputs& in) {
                     return cross_entropy(in[0], in[1], in[2], {.label_smoothing = 0.3, .z_loss = 0.2});
                   },
                   {normal({5, 6}), targets, weights}});
  table.back().optional_inputs = {2};
  table.push_back({"cross_entropy, weights",
                   [](const Inputs& in) { return cross_entropy(in[0], in[1], in[2]); },
                   {normal({5, 6}), targets, weights}});
  table.back().optional_inputs = {2};
  table.push_back(
      {"mse_loss", [](const Inputs& in) { return mse_loss(in[0], in[1]); }, {x, normal({3, 7, 5}, 2)}});
  table.push_back({"binary_cross_entropy_with_logits",
                   [](const Inputs& in) { return binary_cross_entropy_with_logits(in[0], in[1]); },
                   {away_from_zero({3, 31}), uniform({3, 31}, 0, 1)}});
}

void add_products(std::vector<OpCase>& table) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      table.push_back({concat_text("matmul", ta ? " transposed" : "", " times", tb ? " transposed" : ""),
                       [ta, tb](const Inputs& in) {
                         return matmul(in[0], in[1], {ta, tb});
                       },
                       {ta ? normal({3, 1, 4, 2}, 1) : normal({3, 1, 2, 4}, 1),
                        tb ? normal({5, 7, 4}, 2) : normal({5, 4, 7}, 2)}});
  table.push_back({"matmul, inner size 0",
                   [](const Inputs& in) { return matmul(in[0], in[1]); },
                   {normal({2, 0}), normal({0, 3})}});
  const Tensor x = normal({2, 5, 7}, 1), weight = normal({9, 7}, 2), bias = normal({9}, 3);
  const std::pair<const char*, Activation> activations[] = {{"none", Activation::none},
                                                            {"relu", Activation::relu},
                                                            {"gelu", Activation::gelu},
                                                            {"gelu_tanh", Activation::gelu_tanh},
                                                            {"silu", Activation::silu}};
  for (const auto& [name, activation] : activations)
    for (const double p : {0.0, 0.3}) {
      table.push_back({concat_text("linear, ", name, ", dropout ", p),
                       [activation = activation, p](const Inputs& in) {
                         return linear(in[0], in[1], in[2], activation, {p, RandomStream(5, "linear")});
                       },
                       {x, weight, bias}});
      table.back().optional_inputs = {2};
    }
  for (const int64_t stride : {1, 2}) {
    table.push_back(
        {concat_text("conv1d, stride ", stride),
         [stride](const Inputs& in) {
           return conv1d(in[0], in[1], in[2], Tensor::from_vector<int64_t>({3, 7}, {2}), {stride, 1, 0});
         },
         {normal({2, 7, 5}, 1), normal({9, 3, 5}, 2), normal({9}, 3)}});
    table.back().optional_inputs = {2};
  }
  table.push_back(
      {"linear without bias", [](const Inputs& in) { return linear(in[0], in[1], {}); }, {x, weight}});
  table.push_back({"products of low rank",
                   [](const Inputs& in) {
                     return add_low_rank(in[0], in[1], {{in[2], 1}, {in[3], 9}}, 0.7);
                   },
                   {normal({3, 2, 12}), normal({3, 2, 5}, 1), normal({7, 2}, 2), normal({3, 3}, 3)}});
  table.push_back({"linear, no rows",
                   [](const Inputs& in) { return linear(in[0], in[1], in[2]); },
                   {normal({0, 7}), weight, bias}});
  table.back().optional_inputs = {2};
  table.push_back({"layer_norm",
                   [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); },
                   {x, uniform({7}, 0.5, 1.5), normal({7}, 4)}});
  for (const double p : {0.0, 0.3})
    table.push_back({concat_text("residual_layer_norm, dropout ", p),
                     [p](const Inputs& in) {
                       return residual_layer_norm(in[0], in[3], in[1], in[2], {p, RandomStream(5, "norm")});
                     },
                     {x, uniform({7}, 0.5, 1.5), normal({7}, 4), normal({2, 5, 7}, 5)}});
}

// Row widths near the thresholds at which the kernels switch algorithms.
constexpr int64_t kWidths[] = {1, 31, 33, 255, 257, 1025};

// Returns random indices in [0, size). Small indices are much more frequent than large indices.
Tensor skewed_index(const Shape& shape, int64_t size, int salt = 0) {
  const Tensor index = Tensor::empty(shape, DType::int64);
  const RandomStream stream(7, "index", static_cast<uint64_t>(salt));
  for (int64_t i = 0; i < index.numel(); ++i) {
    const auto u = stream.uniform(static_cast<uint64_t>(i));
    index.data<int64_t>()[i] = static_cast<int64_t>(u * u * u * static_cast<double>(size));
  }
  return index;
}

void add_index_sizes(std::vector<OpCase>& table) {
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {
      {1, 1, 1}, {3, 31, 33}, {5, 300, 132}, {700, 1300, 3}, {4, 0, 7}};
  for (const auto& [rows, count, dim] : sizes)
    table.push_back({concat_text("embedding of ", count, " in ", rows, ", width ", dim),
                     [](const Inputs& in) { return embedding(in[0], in[1]); },
                     {normal({rows, dim}), skewed_index({count}, rows)}});
  table.push_back({"gather, wide",
                   [](const Inputs& in) { return gather(in[0], 1, in[1]); },
                   {normal({3, 33, 31}), skewed_index({3, 65, 31}, 33)}});
  table.push_back({"scatter_add, last dimension",
                   [](const Inputs& in) { return scatter_add(in[0], 1, in[2], in[1]); },
                   {normal({33, 5}), normal({33, 31}, 1), skewed_index({33, 31}, 5)}});
}

void add_row_sizes(std::vector<OpCase>& table) {
  const auto with_rows = [&](int64_t rows, int64_t width) {
    const std::string size = concat_text(", ", rows, " rows of ", width);
    const Tensor x = normal({rows, width}, 1), branch = normal({rows, width}, 2);
    const Tensor weight = uniform({width}, 0.5, 1.5), bias = normal({width}, 4);
    table.push_back({"layer_norm" + size,
                     [](const Inputs& in) { return layer_norm(in[0], in[1], in[2], 0.1); },
                     {x, weight, bias}});
    table.push_back(
        {"residual_layer_norm" + size,
         [](const Inputs& in) {
           return residual_layer_norm(in[0], in[3], in[1], in[2], {0.3, RandomStream(5, "norm")}, 0.1);
         },
         {x, weight, bias, branch}});
    table.push_back({"softmax" + size, [](const Inputs& in) { return softmax(in[0]); }, {x}});
    table.push_back({"log_softmax" + size, [](const Inputs& in) { return log_softmax(in[0]); }, {x}});
    table.push_back({"logsumexp" + size, [](const Inputs& in) { return logsumexp(in[0]); }, {x}});
    table.push_back({"cross_entropy" + size,
                     [](const Inputs& in) { return cross_entropy(in[0], in[1], in[2]); },
                     {x, skewed_index({rows}, width), skewed_index({rows}, 2).to(DType::uint8)}});
    table.back().optional_inputs = {2};
  };
  for (const int64_t width : kWidths) with_rows(3, width);
  for (const int64_t width : {4, 120, 256, 500, 1000}) with_rows(2, width);
  with_rows(0, 33);
  const Tensor x = normal({2, 120}, 1);
  table.push_back(
      {"residual_layer_norm, dropout that begins inside a block of random bits",
       [](const Inputs& in) {
         return residual_layer_norm(in[0], in[3], in[1], in[2], {0.3, RandomStream(5, "norm"), 7});
       },
       {x, uniform({120}, 0.5, 1.5), normal({120}, 4), normal({2, 120}, 5)}});
  with_rows(67, 5);
}

void add_linear_sizes(std::vector<OpCase>& table) {
  for (const auto& [rows, width, out] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {3, 33, 31}, {70, 5, 132}})
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::gelu, Activation::silu}) {
      table.push_back({concat_text("linear, ", rows, " rows of ", width, " to ", out, ", activation ",
                                   static_cast<int>(activation)),
                       [activation = activation](const Inputs& in) {
                         return linear(in[0], in[1], in[2], activation, {0.2, RandomStream(5, "linear")});
                       },
                       {normal({rows, width}, 1), normal({out, width}, 2), normal({out}, 3)}});
      table.back().optional_inputs = {2};
    }
}

void add_mixtures(std::vector<OpCase>& table) {
  for (const auto& size :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 2}, {131, 3, 256}, {30, 64, 16}, {0, 2, 256}}) {
    const int64_t rows = std::get<0>(size), mixtures = std::get<1>(size), levels = std::get<2>(size);
    const Tensor counted = skewed_index({rows}, 2).to(DType::uint8);
    const auto add = [&](const char* what, bool masked) {
      table.push_back(
          {concat_text("logistic_mixture_loss, ", rows, " rows of ", mixtures, what),
           [levels](const Inputs& in) {
             return logistic_mixture_loss(in[0], in[1], {levels, in.size() > 2 ? in[2] : Tensor{}});
           },
           {normal({rows, 3 * mixtures}, 1), skewed_index({rows}, levels, 3)}});
      if (!masked) return;
      table.back().inputs.push_back(counted);
      table.back().optional_inputs = {2};
    };
    add("", false);
    add(", masked", true);
  }
}

// Adds cases of LSTMs. A gate is a sum of in + hidden + 2 terms. The float32 tolerance grows with the square
// root of this number.
void add_lstm(std::vector<OpCase>& table) {
  const auto add = [&](int64_t directions, const std::vector<int64_t>& lengths, int64_t frames, int64_t in,
                       int64_t hidden, bool large = false) {
    const auto batch = static_cast<int64_t>(lengths.size());
    // The lengths are not among the inputs, because tests copy the inputs to a device, and lstm() reads the
    // lengths on the CPU.
    const Tensor counts = Tensor::from_vector<int64_t>(lengths, {batch});
    Inputs inputs = {normal({batch, frames, in}, 1)};
    for (int d = 0; d < directions; ++d)
      for (const Shape& shape :
           {Shape{4 * hidden, in}, Shape{4 * hidden, hidden}, Shape{4 * hidden}, Shape{4 * hidden}})
        inputs.push_back(normal(shape, 10 + static_cast<int>(inputs.size())));
    table.push_back({concat_text("lstm, ", directions, " directions, ", batch, " sequences of ", frames, ", ",
                                 in, " to ", hidden),
                     [counts](const Inputs& x) {
                       std::vector<LstmWeights> weights;
                       for (size_t i = 1; i < x.size(); i += 4)
                         weights.push_back({x[i], x[i + 1], x[i + 2], x[i + 3]});
                       return lstm(x[0], counts, weights);
                     },
                     inputs, large, std::sqrt(static_cast<double>(in + hidden + 2))});
  };
  for (const int64_t directions : {1, 2}) {
    add(directions, {5, 0, 7, 1, 5}, 7, 3, 2);
    add(directions, {1}, 1, 1, 1);
    add(directions, {0, 0}, 3, 2, 2);
    add(directions, {31, 40, 2}, 40, 33, 37, true);
  }
}

// Adds cases that are large enough for several threads on the CPU.
void add_parallel_sizes(std::vector<OpCase>& table) {
  const auto add_case = [&](const char* name, const std::function<Tensor(const Inputs&)>& function,
                            const Inputs& inputs, double tolerance_factor = 1) {
    table.push_back({concat_text(name, ", several threads"), function, inputs, true, tolerance_factor});
  };
  const Tensor x = normal({3, 41'003}, 1), rows = normal({401, 257}, 2);
  add_case("gelu", [](const Inputs& in) { return gelu(in[0]); }, {x});
  add_case("mul", [](const Inputs& in) { return mul(in[0], in[1]); }, {x, normal({3, 41'003}, 3)});
  add_case("permute", [](const Inputs& in) { return square(permute(in[0], {1, 0})); }, {x});
  for (const int dim : {0, 1})
    add_case(
        dim == 0 ? "sum, dimension 0" : "sum, dimension 1",
        [dim](const Inputs& in) { return sum(in[0], dim); }, {rows}, std::sqrt(401));
  add_case(
      "sum of all", [](const Inputs& in) { return sum(in[0]); }, {x}, std::sqrt(3 * 41'003));
  add_case("max", [](const Inputs& in) { return max(in[0], 1); }, {rows});
  add_case("softmax", [](const Inputs& in) { return softmax(in[0]); }, {rows});
  add_case("cross_entropy", [](const Inputs& in) { return cross_entropy(in[0], in[1]); },
           {rows, skewed_index({401}, 257)});
  add_case(
      "embedding", [](const Inputs& in) { return embedding(in[0], in[1]); },
      {normal({300, 65}), skewed_index({2000}, 300)}, std::sqrt(1000));
  add_case(
      "layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); },
      {rows, uniform({257}, 0.5, 1.5), normal({257}, 4)}, std::sqrt(401));
  add_case(
      "linear", [](const Inputs& in) { return linear(in[0], in[1], in[2], Activation::gelu); },
      {rows, normal({129, 257}, 5), normal({129}, 6)}, std::sqrt(401));
  table.back().optional_inputs = {2};
}

}  // namespace

std::vector<OpCase> make_op_table() {
  std::vector<OpCase> table;
  add_elementwise(table);
  add_feature_maps(table);
  add_views(table);
  add_reductions(table);
  add_products(table);
  add_index_sizes(table);
  add_row_sizes(table);
  add_linear_sizes(table);
  add_mixtures(table);
  add_lstm(table);
  add_parallel_sizes(table);
  add_attention_cases(table);
  add_float_attention_cases(table);
  add_conv_and_norm_cases(table);
  for (OpCase& op : table)
    for (const char* name : {"matmul", "linear", "conv1d", "layer_norm", "residual_layer_norm", "lstm"})
      op.depends_on_threads = op.depends_on_threads || op.name.starts_with(name);
  return table;
}

std::vector<Tensor> compute_result_and_gradients(const OpCase& op, Device device, DType dtype,
                                                 std::optional<size_t> only) {
  std::vector<Tensor> inputs, leaves;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& input = op.inputs[i];
    const bool floating = is_floating(input.dtype());
    inputs.push_back((floating ? input.to(dtype) : input).to(device).alias());
    if (floating && only.value_or(i) == i) leaves.push_back(set_requires_grad(inputs.back()));
  }
  const Tensor result = op.function(inputs);
  backward(result, normal(result.shape(), 17, dtype).to(device));
  std::vector<Tensor> outcome{detach(result).to(kCpu)};
  for (const Tensor& leaf : leaves) outcome.push_back(gradient(leaf).to(kCpu));
  return outcome;
}

}  // namespace tapeformer::test
