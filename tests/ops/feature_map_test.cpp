#include "ops/feature_map.h"

#include <doctest/doctest.h>

#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("apply_feature_map_in_place() gives the results of apply_feature_map() on every device") {
  for (const FeatureMap map : {FeatureMap::elu_plus_one, FeatureMap::relu, FeatureMap::squared_relu,
                               FeatureMap::exponential, FeatureMap::identity})
    for (const Device device : list_devices())
      for (const DType dtype : {DType::float32, DType::float64}) {
        CAPTURE(static_cast<int>(map));
        const Tensor x = normal({3, 5, 70}).to(dtype).to(device);
        const std::vector<double> expected = apply_feature_map(map, x).to_vector();
        CHECK((expected == x.to_vector()) == (map == FeatureMap::identity));
        apply_feature_map_in_place(map, x);
        CHECK(x.to_vector() == expected);
      }
}

TEST_CASE("apply_feature_map() refuses bfloat16, and in place a tensor that is not contiguous") {
  const Tensor x = normal({3, 4});
  CHECK_THROWS_AS(apply_feature_map(FeatureMap::relu, x.to(DType::bfloat16)), ShapeError);
  CHECK_THROWS_WITH_AS(apply_feature_map_in_place(FeatureMap::relu, transpose(x, 0, 1)),
                       "apply_feature_map: x (4, 3) must be contiguous", ShapeError);
}
