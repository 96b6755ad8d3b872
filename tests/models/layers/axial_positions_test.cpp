#include "models/layers/axial_positions.h"

#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "models/autoregressive_model.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("axial positions concatenate the rows of the tables at their coordinates, for any length") {
  AxialPositions positions({{2, 3, 4}, {5, 1, 2}});
  positions.initialize(1);
  for (const int64_t length : {0, 1, 4, 13, 24}) {
    const Tensor found = positions.forward(length);
    REQUIRE(found.shape() == Shape{length, 8});
    for (int64_t p = 0; p < length; ++p) {
      const int64_t coordinates[] = {p / 12, p / 4 % 3, p % 4}, dims[] = {5, 1, 2};
      int64_t feature = 0;
      for (size_t a = 0; a < 3; ++a)
        for (int64_t i = 0; i < dims[a]; ++i, ++feature)
          REQUIRE(found.data<float>()[p * 8 + feature] ==
                  positions.tables[a].data<float>()[coordinates[a] * dims[a] + i]);
    }
  }
  CHECK_THROWS_WITH_AS(positions.forward(25),
                       "axial positions: length 25 is beyond the 24 positions of shape [2, 3, 4]",
                       ShapeError);
}

TEST_CASE("the tables of axial positions are drawn from N(0, 1) and get gradients") {
  AxialPositions positions({{64, 64}, {32, 32}});
  positions.initialize(1);
  for (const Tensor& table : positions.tables) {
    double mean = 0, square = 0;
    for (const double value : table.to_vector()) {
      mean += value / 2048;
      square += value * value / 2048;
    }
    CHECK(std::abs(mean) < 0.08);
    CHECK(square == doctest::Approx(1).epsilon(0.1));
  }
  AxialPositions small({{2, 3}, {1, 2}});
  small.initialize(1);
  small.convert(DType::float64);
  const Tensor cotangent = normal({5, 3}, 1);
  backward(small.forward(5), cotangent);
  // Positions 3 and 4 use row 1 of the first table. Only position 2 uses row 2 of the second table.
  CHECK(gradient(small.tables[0]).to_vector()[1] ==
        doctest::Approx(cotangent.to_vector()[9] + cotangent.to_vector()[12]));
  CHECK(gradient(small.tables[1]).to_vector()[5] == cotangent.to_vector()[8]);
}

TEST_CASE("a model adds axial positions to an embedding of the full width") {
  AutoregressiveModelOptions options = small_options("linear");
  options.position_kind = PositionKind::axial;
  options.axial_shape = {{3, 4}, {2, 6}};
  const AutoregressiveModel model(options);
  CHECK(model.value_embedding.weight.shape() == Shape{256, 8});
  CHECK(model.position_features.numel() == 0);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.parameters()) names.push_back(name);
  CHECK(names[1] == "positions.0");
  CHECK(names[2] == "positions.1");
}

TEST_CASE("errors about invalid axial shapes name the option and give an example") {
  AutoregressiveModelOptions options = small_options("linear");
  options.position_kind = PositionKind::axial;
  const auto problem = [&](std::vector<int64_t> shape, std::vector<int64_t> dims) -> std::string {
    options.axial_shape = {std::move(shape), std::move(dims)};
    try {
      const AutoregressiveModel model(options);
    } catch (const OptionError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(problem({3, 4}, {2, 6}) == "");
  CHECK(problem({2, 4}, {2, 6}) ==
        "axial_shape: expected at least 11 positions, the length of the sequences, got 8 in [2, 4]; for "
        "example, [3, 4] is large enough");
  CHECK(problem({3, 1000}, {2, 6}) ==
        "axial_shape: expected sizes of at most 4 times the length of the sequences, 11, got [3, 1000]");
  CHECK(problem({3, 4}, {2, 5}) ==
        "axial_dims: expected numbers that add up to the width, 8, got a sum of 7");
  for (const auto& [shape, dims] : std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>{
           {{}, {}}, {{3, 4}, {8}}, {{0, 4}, {2, 6}}, {{3, 4}, {8, 0}}, {{-3, -4}, {2, 6}}})
    CHECK(problem(shape, dims).find(" above 0") != std::string::npos);
  const int64_t huge = int64_t{1} << 40;
  CHECK(problem({huge, huge}, {2, 6}).find("at most 1e15 positions") != std::string::npos);
  options.value_embedding_dim = 4;
  CHECK(problem({3, 4}, {2, 6}).find("value_dim: only sinusoidal and grid positions") != std::string::npos);
}
