// Tests that compare each device with the CPU for functions that the op table does not contain. These
// functions write to existing tensors, draw samples or update parameters.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/class_sampling.h"
#include "ops/index.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "ops/logistic_mixture.h"
#include "ops/norm.h"
#include "ops/optimizer_step.h"
#include "ops/softmax.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("cuda: ops of decoding give the results of the CPU") {
  const NoGradScope no_grad;
  for (const Device device : list_cuda_devices())
    for (const auto& size : {std::tuple<int64_t, int64_t, int64_t>{1, 5, 3}, {4, 32, 8}, {37, 33, 70}}) {
      const int64_t rows = std::get<0>(size), in = std::get<1>(size), out = std::get<2>(size);
      CAPTURE(rows);
      const Tensor x = normal({rows, in}, 1), weight = normal({out, in}, 2), bias = normal({out}, 3);
      const Tensor y = Tensor::empty({rows, out}, DType::float64, device), scratch = Tensor::empty_like(y);
      const DecodingLinear map(weight.to(device), bias.to(device), rows);
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        map.forward_into(x.to(device), activation, y, scratch);
        CHECK(max_difference(y, linear(x, weight, bias, activation)) < 1e-12);
      }

      const Tensor tokens = Tensor::full({rows}, 2, DType::uint8),
                   expected = Tensor::empty({rows, in + out}, DType::float64);
      const Tensor table = normal({3, in}, 4), positions = normal({2, out}, 5);
      embed_into(table, tokens, positions, 1, expected);
      const Tensor found = Tensor::empty({rows, in + out}, DType::float64, device);
      embed_into(table.to(device), tokens.to(device), positions.to(device), 1, found);
      CHECK(max_difference(found, expected) == 0);

      const Tensor branch = normal({rows, out}, 6), other = normal({rows, out}, 7), gain = normal({out}, 8);
      const Tensor normed = Tensor::empty_like(branch);
      norm_into(other, branch, {gain, bias}, normed);
      norm_into(other.to(device), branch.to(device), {gain.to(device), bias.to(device)}, y);
      CHECK(max_difference(y, normed) < 1e-12);
      const Tensor rounded = Tensor::empty({rows, out}, DType::bfloat16, device), on_cpu = rounded.to(kCpu);
      norm_into(other, branch, {gain, bias}, normed, on_cpu);
      norm_into(other.to(device), branch.to(device), {gain.to(device), bias.to(device)}, y, rounded);
      CHECK(max_difference(rounded, y.to(DType::bfloat16)) == 0);
      CHECK(max_difference(on_cpu, normed.to(DType::bfloat16)) == 0);
      add_into(other.to(device), branch.to(device), y);
      add_into(other, branch, normed);
      CHECK(max_difference(y, normed) == 0);
    }
}

TEST_CASE("cuda: samples of the mixture of logistics equal the samples on the CPU") {
  for (const Device device : list_cuda_devices())
    for (const int64_t mixtures : {1, 10, 64})
      for (const SamplingScale scale : {SamplingScale::elu, SamplingScale::exp}) {
        constexpr int64_t kRows = 131;
        const Tensor p = normal({kRows, 3 * mixtures}, 3), expected = Tensor::empty({kRows}, DType::uint8);
        const Tensor found = Tensor::empty({kRows}, DType::uint8, device);
        sample_logistic_mixture(p, RandomStream(3, "sample"), 1000, expected, scale);
        sample_logistic_mixture(p.to(device), RandomStream(3, "sample"), 1000, found, scale);
        CHECK(max_difference(found, expected) == 0);
      }
}

TEST_CASE("cuda: sampled classes equal the classes on the CPU, and ties select the first class") {
  for (const Device device : list_cuda_devices())
    for (const int64_t classes : {1, 11, 32, 33, 256})
      for (const bool greedy : {false, true})
        for (const DType dtype : {DType::float32, DType::float64}) {
          constexpr int64_t kRows = 131;
          const Tensor logits = normal({kRows, classes}, 3, dtype);
          const Tensor expected = Tensor::empty({kRows}, DType::uint8);
          const Tensor found = Tensor::empty({kRows}, DType::uint8, device);
          sample_classes(logits, RandomStream(3, "sample"), 1000, expected, {.greedy = greedy});
          sample_classes(logits.to(device), RandomStream(3, "sample"), 1000, found, {.greedy = greedy});
          CHECK(max_difference(found, expected) == 0);
          const Tensor equal = Tensor::zeros({kRows, classes}, dtype, device);
          sample_classes(equal, RandomStream(3, "sample"), 0, found, {.greedy = true});
          CHECK(max_difference(found, Tensor::zeros({kRows}, DType::uint8)) == 0);
          sample_classes(Tensor::full({kRows, classes}, NAN, dtype, device), RandomStream(3, "sample"), 0,
                         found, {.greedy = greedy});
          CHECK(max_difference(found, Tensor::zeros({kRows}, DType::uint8)) == 0);
        }
}

TEST_CASE("cuda: sampling with top-k, top-p and temperature gives the classes of the CPU") {
  for (const Device device : list_cuda_devices())
    for (const int64_t classes : {2, 33, 300})
      for (const ClassSamplingOptions& sampling :
           {ClassSamplingOptions{.temperature = 0.5}, ClassSamplingOptions{.top_k = 1},
            ClassSamplingOptions{.top_k = 7}, ClassSamplingOptions{.top_p = 0.3},
            ClassSamplingOptions{.temperature = 2, .top_k = 20, .top_p = 0.9}}) {
        const Tensor logits = normal({65, classes}, 5, DType::float32);
        // Classes with a logit of -inf are never drawn.
        for (int64_t row = 0; row < 65; row += 2)
          logits.data<float>()[row * classes + row % classes] = -INFINITY;
        const Tensor expected = Tensor::empty({65}, DType::int64);
        const Tensor found = Tensor::empty({65}, DType::int64, device);
        sample_classes(logits, RandomStream(3, "sample"), 0, expected, sampling);
        sample_classes(logits.to(device), RandomStream(3, "sample"), 0, found, sampling);
        CHECK(max_difference(found, expected) == 0);
      }
}

TEST_CASE("cuda: an index out of range is an error if it is on the CPU, and gives NaN on the device") {
  for (const Device device : list_cuda_devices()) {
    const Tensor table = normal({4, 3}).to(device), bad = Tensor::from_vector<int64_t>({1, 4, -1, 0}, {4});
    CHECK_THROWS_AS(embedding(table, bad), ShapeError);
    CHECK_THROWS_AS(cross_entropy(table, bad), ShapeError);
    const auto rows = embedding(table, bad.to(device)).to_vector();
    for (size_t i = 0; i < rows.size(); ++i) CHECK(std::isnan(rows[i]) == (i / 3 == 1 || i / 3 == 2));
    const Tensor column = Tensor::from_vector<int64_t>({2, 3, 0, 0}, {4, 1}).to(device);
    CHECK(std::isnan(gather(table, 1, column).to_vector()[1]));
    CHECK(std::isnan(scatter_add(table, 1, column, normal({4, 1}).to(device)).to_vector()[3]));
    CHECK(std::isnan(cross_entropy(table, bad.to(device)).item()));
    CHECK(
        std::isnan(logistic_mixture_nll(table, Tensor::full({4}, 256, DType::int64, device)).to_vector()[0]));
    CHECK(embedding(table, Tensor::from_vector<uint8_t>({3}, {1})).to_vector()[0] == table.to_vector()[9]);
  }
}

TEST_CASE("scatter_rows sums the rows with equal indices, on all devices") {
  for (const Device device : list_devices()) {
    const Tensor x = Tensor::from_vector<double>({1, 2, 4, 8, 16, 32}, {3, 2}).to(device);
    const Tensor index = Tensor::from_vector<int64_t>({2, 0, 2}, {3}).to(device);
    CHECK(scatter_rows(x, index, 4).to_vector() == std::vector<double>{4, 8, 0, 0, 17, 34, 0, 0});
    CHECK_THROWS_WITH_AS(scatter_rows(x, Tensor::zeros({2}, DType::int64), 4),
                         "scatter_rows: x (3, 2) does not match the index (2,)", ShapeError);
  }
}

namespace {

// Takes two optimizer steps for `arrays` parameters of various sizes and one unaligned parameter. Returns the
// gradient norms of the two steps, and then the final parameter, average and moments of each parameter.
std::vector<Tensor> after_steps(Device device, DType dtype, const UpdateRule& rule, const Clipping& clipping,
                                bool with_second, int arrays) {
  std::vector<ParameterTensors> slots;
  std::vector<Tensor> outcome;
  for (int i = 0; i < arrays; ++i) {
    const Shape shape{i == 3 ? 20001 : i == 4 ? 0 : 1 + 3 * (i % 70)};
    const auto random_array = [&](int salt) { return normal(shape, 4 * i + salt, dtype).to(device).clone(); };
    slots.push_back({random_array(0), random_array(1), random_array(2),
                     with_second ? uniform(shape, 0.5, 2, i, dtype).to(device).clone() : Tensor{}});
    slots.back().decays = i % 4 != 2;
    if (i == 5)  // adds a parameter that is not aligned to 16 bytes
      slots.push_back(
          {random_array(0).view({shape[0] - 1}, {1}, 1), random_array(1).view({shape[0] - 1}, {1}),
           random_array(2).view({shape[0] - 1}, {1}),
           with_second ? uniform({shape[0] - 1}, 0.5, 2, i, dtype).to(device).clone() : Tensor{}});
  }
  UpdateRule complete = rule;
  complete.average_decay = 0.75;
  const Tensor kept = copy_rule_to_device(device, complete);
  outcome.push_back(apply_optimizer_step(slots, kept, clipping));
  outcome.push_back(apply_optimizer_step(slots, kept, clipping));
  for (const ParameterTensors& slot : slots) {
    update_moving_average(slot.gradient, slot.parameter, kept);
    for (const Tensor& tensor : {slot.parameter, slot.gradient, slot.first_moment, slot.second_moment})
      if (tensor.defined()) outcome.push_back(tensor.to(kCpu));
  }
  return outcome;
}

}  // namespace

TEST_CASE(
    "cuda: optimizer steps equal the CPU with each kind of clipping, and are bit-identical in every "
    "run") {
  const UpdateRule adam{.momentum = 0.9,
                        .gain = 0.1,
                        .beta2 = 0.99,
                        .l2 = 0.1,
                        .step_size = 0.1,
                        .second_scale = 1.1,
                        .eps = 1e-8,
                        .adaptive = true};
  const UpdateRule sgd{.momentum = 0.9, .shrink = 0.99, .step_size = 0.1};
  for (const Device device : list_cuda_devices())
    for (const DType dtype : {DType::float64, DType::float32})
      for (const Clipping& clipping : {Clipping{.gradient_scale = -0.5}, Clipping{.max_norm = 3},
                                       Clipping{.gradient_scale = 2, .max_norm = 10, .per_tensor = true}})
        for (const bool adaptive : {false, true}) {
          // 390 arrays need more than one launch.
          const int arrays = dtype == DType::float32 && clipping.max_norm == 3 && adaptive ? 390 : 70;
          const auto run = [&](Device where) {
            return after_steps(where, dtype, adaptive ? adam : sgd, clipping, adaptive, arrays);
          };
          const std::vector<Tensor> expected = run(kCpu), found = run(device), again = run(device);
          for (size_t i = 0; i < found.size(); ++i) {
            CAPTURE(i);
            CHECK(max_difference(found[i], expected[i]) < (dtype == DType::float64 ? 1e-11 : 1e-5));
            CHECK(max_difference(found[i], again[i]) == 0);
          }
        }
}

TEST_CASE("cuda: a layer norm without gradients of weight and bias equals the CPU") {
  for (const Device device : list_cuda_devices())
    for (const int64_t dim : {33, 1025}) {
      const auto gradient_on = [&](Device where) {
        const auto input = [&](const Shape& shape, int salt) {
          return normal(shape, salt, DType::float32).to(where);
        };
        const Tensor x = set_requires_grad(input({5, dim}, 1).alias());
        backward(layer_norm(x, input({dim}, 2), input({dim}, 3)), input({5, dim}, 4));
        return gradient(x).to(kCpu);
      };
      CHECK(max_difference(gradient_on(device), gradient_on(kCpu)) < 1e-5);
    }
}

namespace {

// Returns the gradients of the weight and bias of a linear layer from (rows, 2) to (rows, dim), and of the
// scale and shift of a layer norm of (rows, dim). Each gradient is a sum over rows.
std::vector<Tensor> column_sums(Device device, int64_t rows, int64_t dim) {
  const auto input = [&](const Shape& shape, int salt) {
    return set_requires_grad(normal(shape, salt, DType::float32).to(device).alias());
  };
  const Tensor weight = input({dim, 2}, 1), bias = input({dim}, 2), scale = input({dim}, 3),
               shift = input({dim}, 4), x = normal({rows, 2}, 5, DType::float32).to(device),
               g = normal({rows, dim}, 6, DType::float32).to(device);
  backward(linear(x, weight, bias), g);
  backward(layer_norm(normal({rows, dim}, 7, DType::float32).to(device), scale, shift), g);
  std::vector<Tensor> sums;
  for (const Tensor& leaf : {weight, bias, scale, shift}) sums.push_back(gradient(leaf).to(kCpu));
  return sums;
}

}  // namespace

TEST_CASE("cuda: sums over the rows of many blocks equal the CPU and repeat bit by bit") {
  // The sizes cover different numbers of partial sums. With 65601 columns, a kernel needs more than
  // kArrivalCounterCount counters.
  for (const Device device : list_cuda_devices())
    for (const auto& [rows, dim] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 5}, {1, 33}, {127, 1}, {130, 32}, {4099, 33}, {150, 1025}, {2, 65601}}) {
      CAPTURE(rows);
      CAPTURE(dim);
      const std::vector<Tensor> expected = column_sums(kCpu, rows, dim),
                                found = column_sums(device, rows, dim),
                                again = column_sums(device, rows, dim);
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);
        CHECK(max_difference(found[i], expected[i]) <=
              1e-6 * static_cast<double>(rows) + 1e-5 * std::sqrt(static_cast<double>(rows)));
        CHECK(max_difference(found[i], again[i]) == 0);
      }
    }
}
