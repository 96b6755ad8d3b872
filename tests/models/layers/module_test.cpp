#include "models/layers/module.h"

#include <doctest/doctest.h>

#include <cmath>

#include "models/layers/layers.h"
#include "models/layers/positions.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/devices.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("the image models of Transformers are RNNs have the published numbers of parameters") {
  AutoregressiveModelOptions options;
  options.encoder.attention = {{"linear", find_attention_kind("linear").default_options()}};
  options.max_length = 783;
  CHECK(count_parameters(AutoregressiveModel(options)) == 6'359'070);
  options.encoder.layers = 16;
  options.max_length = 3071;
  CHECK(count_parameters(AutoregressiveModel(options)) == 12'677'150);
}

TEST_CASE("parameters have the names of PyTorch modules, and positions are a buffer") {
  const AutoregressiveModel model(small_options("linear"));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters()) names.push_back(name);
  const std::vector<std::string> expected_start = {
      "value_embedding.weight", "layers.0.attention.query_projection.weight",
      "layers.0.attention.query_projection.bias", "layers.0.attention.key_projection.weight"};
  CHECK(std::vector<std::string>(names.begin(), names.begin() + 4) == expected_start);
  for (const char* name : {"layers.1.linear1.weight", "layers.1.linear2.bias", "layers.0.norm1.weight",
                           "norm.bias", "predictor.weight", "layers.1.attention.out_projection.bias"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  CHECK(model.buffers().size() == 1);
}

TEST_CASE("the weights of queries, keys and values are adjacent, also after convert() and move()") {
  AutoregressiveModel model(small_options("linear"));
  const auto joined_is_view = [&] {
    std::vector<Tensor> weights;
    for (const auto& [name, tensor] : model.parameters())
      if (name.find("layers.1.") == 0 && name.ends_with("y_projection.weight"))
        weights.push_back(detach(tensor));
    REQUIRE(weights.size() == 2);  // the weights of queries and keys
    return concat(weights, 0).shares_storage(weights[0]);
  };
  CHECK(joined_is_view());
  model.convert(DType::float64);
  CHECK(joined_is_view());
  for (const auto& [name, tensor] : model.parameters()) CHECK(requires_grad(tensor));
  for (const Device device : list_devices()) {
    model.move(device);
    CHECK(joined_is_view());
  }
}

TEST_CASE("initialisation is PyTorch's default and depends only on the seed and the name") {
  const Linear layer(100, 400);
  layer.initialize(1);
  double largest = 0, square = 0;
  for (const double w : layer.weight.to_vector()) {
    largest = std::max(largest, std::abs(w));
    square += w * w / 40000;
  }
  CHECK(largest <= 0.1);
  CHECK(largest > 0.0999);
  CHECK(square == doctest::Approx(0.01 / 3).epsilon(0.03));
  const Linear other(100, 400);
  other.initialize(1);
  CHECK(other.weight.to_vector() == layer.weight.to_vector());
  other.initialize(2);
  CHECK(other.weight.to_vector() != layer.weight.to_vector());
  const Embedding embedding(256, 128);
  embedding.initialize(1);
  double variance = 0;
  for (const double w : embedding.weight.to_vector()) variance += w * w / (256 * 128);
  CHECK(variance == doctest::Approx(1).epsilon(0.03));
}

TEST_CASE("sinusoidal and grid positions are sines and cosines of the coordinates") {
  const Tensor s = make_sinusoidal_position_features(50, 8);
  CHECK(s.data<double>()[3 * 8 + 2] == doctest::Approx(std::sin(3 / std::pow(10000, 2 / 8.0))));
  CHECK(s.data<double>()[3 * 8 + 3] == doctest::Approx(std::cos(3 / std::pow(10000, 2 / 8.0))));
  const Tensor g = make_grid_position_features({4, 5, 1}, 19, 8);
  // The model predicts byte 7 at position 6. In an image of width 5, byte 7 is in row 1 and column 2.
  CHECK(g.data<double>()[6 * 8] == doctest::Approx(std::sin(1.0)));
  CHECK(g.data<double>()[6 * 8 + 4] == doctest::Approx(std::sin(2.0)));
}

TEST_CASE("the error about a parameter that does not fit into memory names the parameter") {
  class Table final : public Module {
   public:
    Table() {
      add_parameter("table", table_, {int64_t{1} << 25, int64_t{1} << 20}, make_constant_initializer(0));
    }

   private:
    Tensor table_;
  };
  CHECK_THROWS_WITH_AS(Table(), doctest::Contains("MiB, for \"table\" (33554432, 1048576)"),
                       OutOfMemoryError);
}
