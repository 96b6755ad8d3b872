// What the op table cannot hold: ops that write into given memory or draw samples, and what only a device
// does. Each on every machine beside the CPU, against the CPU.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/index.h"
#include "ops/inference.h"
#include "ops/logistic_mixture.h"
#include "ops/softmax.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("cuda: ops of decoding give what they give on the CPU") {
  const NoGrad no_grad;
  for (const Device device : other_devices())
    for (const auto& [rows, in, out] :
         {std::tuple<int64_t, int64_t, int64_t>{1, 5, 3}, {4, 32, 8}, {37, 33, 70}}) {
      CAPTURE(rows);
      const Tensor x = normal({rows, in}, 1), weight = normal({out, in}, 2), bias = normal({out}, 3);
      const Tensor y = Tensor::empty({rows, out}, DType::float64, device), scratch = Tensor::empty_like(y);
      const DecodingLinear map(weight.to(device), bias.to(device), rows);
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        map.into(x.to(device), activation, y, scratch);
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
      layer_norm_into(other, branch, gain, bias, normed);
      layer_norm_into(other.to(device), branch.to(device), gain.to(device), bias.to(device), y);
      CHECK(max_difference(y, normed) < 1e-12);
      add_into(other.to(device), branch.to(device), y);
      add_into(other, branch, normed);
      CHECK(max_difference(y, normed) == 0);
    }
}

TEST_CASE("cuda: samples of the mixture of logistics are those of the CPU") {
  for (const Device device : other_devices())
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

TEST_CASE("cuda: an index out of range is an error from the CPU and makes NaN on the device") {
  for (const Device device : other_devices()) {
    const Tensor table = normal({4, 3}).to(device), bad = Tensor::from<int64_t>({1, 4, -1, 0}, {4});
    CHECK_THROWS_AS(embedding(table, bad), ShapeError);
    CHECK_THROWS_AS(cross_entropy(table, bad), ShapeError);
    const auto rows = embedding(table, bad.to(device)).to_vector();
    for (size_t i = 0; i < rows.size(); ++i) CHECK(std::isnan(rows[i]) == (i / 3 == 1 || i / 3 == 2));
    const Tensor column = Tensor::from<int64_t>({2, 3, 0, 0}, {4, 1}).to(device);
    CHECK(std::isnan(gather(table, 1, column).to_vector()[1]));
    CHECK(std::isnan(scatter_add(table, 1, column, normal({4, 1}).to(device)).to_vector()[3]));
    CHECK(std::isnan(cross_entropy(table, bad.to(device)).item()));
    CHECK(
        std::isnan(logistic_mixture_nll(table, Tensor::full({4}, 256, DType::int64, device)).to_vector()[0]));
    CHECK(embedding(table, Tensor::from<uint8_t>({3}, {1})).to_vector()[0] == table.to_vector()[9]);
  }
}
