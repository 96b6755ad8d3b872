#include "data/speech/features.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("deltas are slopes, and the frames at the ends are repeated") {
  // For x = t^2, the first derivative is 2 t and the second is 2, except at the ends.
  std::vector<float> values;
  for (int t = 0; t < 12; ++t) values.push_back(static_cast<float>(t * t));
  const Tensor features = add_deltas(Tensor::from_vector(values, {12, 1}));
  CHECK(features.shape() == Shape({12, 3}));
  const auto v = features.to_vector();
  for (size_t t = 4; t < 8; ++t) {
    CHECK(v[3 * t] == doctest::Approx(t * t));
    CHECK(v[3 * t + 1] == doctest::Approx(2 * t));
    CHECK(v[3 * t + 2] == doctest::Approx(2));
  }
  CHECK(v[1] == doctest::Approx((1 * 1 + 2 * 4) / 10.0));  // the first frame is repeated before the start
  CHECK(add_deltas(Tensor::zeros({0, 3})).shape() == Shape({0, 9}));
  CHECK(add_deltas(Tensor::zeros({1, 3})).to_vector() == std::vector<double>(9, 0.0));
}

TEST_CASE(
    "the deltas of frames that arrive in pieces are bit-identical, and come two frames per order later") {
  const Tensor features = normal({23, 3}, 4, DType::float32);
  for (const int64_t order : {0, 1, 2}) {
    const auto whole = add_deltas(features, order).to_vector();
    for (const int64_t piece : {1, 2, 10, 23}) {
      DeltaStream stream(order);
      std::vector<double> found;
      for (int64_t at = 0; at < 23; at += piece) {
        const int64_t count = std::min<int64_t>(piece, 23 - at);
        const auto values = stream.push(features.view({count, 3}, {3, 1}, at * 3).clone()).to_vector();
        found.insert(found.end(), values.begin(), values.end());
        CHECK(static_cast<int64_t>(found.size()) ==
              std::max<int64_t>(0, at + count - 2 * order) * 3 * (order + 1));
      }
      const auto values = stream.push(Tensor::zeros({0, 3}), true).to_vector();
      found.insert(found.end(), values.begin(), values.end());
      CHECK(found == whole);
    }
  }
  DeltaStream empty(2);
  CHECK(empty.push(Tensor::zeros({0, 3})).shape() == Shape({0, 9}));
  CHECK(empty.push(Tensor::zeros({0, 3}), true).shape() == Shape({0, 9}));
  CHECK(contains(message_of<ShapeError>([&] { empty.push(Tensor::zeros({1, 4})); }), "expected 3 dims"));
}

TEST_CASE("normalised features have mean 0 and variance 1, also with statistics of several parts") {
  const Tensor a = normal({31, 5}, 1, DType::float32), b = uniform({70, 5}, 3, 9, 2, DType::float32);
  FeatureStatistics first, second, both;
  first.add(a);
  second.add(b);
  first.add(second);
  both.add(a);
  both.add(b);
  CHECK(first.frame_count == 101);
  for (size_t d = 0; d < 5; ++d) CHECK(first.sums[d] == doctest::Approx(both.sums[d]).epsilon(1e-12));
  normalize_features(a, both, true);
  normalize_features(b, both, true);
  FeatureStatistics after;
  after.add(a);
  after.add(b);
  for (size_t d = 0; d < 5; ++d) {
    CHECK(std::abs(after.sums[d]) < 1e-3);
    CHECK(after.square_sums[d] == doctest::Approx(101).epsilon(1e-4));
  }
  const Tensor constant = Tensor::full({9, 2}, 3.25);
  FeatureStatistics flat;
  flat.add(constant);
  normalize_features(constant, flat, true);
  CHECK(constant.to_vector() == std::vector<double>(18, 0.0));
  CHECK(contains(message_of<ShapeError>([&] { normalize_features(a, flat, true); }), "statistics of 2 dims"));
  CHECK(contains(message_of<ShapeError>([&] { normalize_features(constant, FeatureStatistics(), true); }),
                 "0 frames"));
}

TEST_CASE("SpecAugment masks bands and spans within its limits and depends on its stream only") {
  const SpecAugmentOptions options{.frequency_width = 8, .time_width = 20, .time_share = 0.1};
  double masked = 0;
  for (uint64_t step = 0; step < 50; ++step) {
    const RandomStream stream(3, "spec_augment", step);
    const Tensor features = Tensor::full({60, 40}, 1), again = Tensor::full({60, 40}, 1);
    apply_spec_augment(features, options, stream, 20);
    apply_spec_augment(again, options, stream, 20);
    CHECK(max_difference(features, again) == 0);
    const float* v = features.data<float>();
    int64_t frames = 0, bands = 0;
    for (int64_t t = 0; t < 60; ++t)
      frames += std::all_of(v + t * 40, v + t * 40 + 40, [](float x) { return x == 0; });
    for (int64_t d = 0; d < 20; ++d) {
      bool empty = true;
      for (int64_t t = 0; t < 60; ++t) {
        empty = empty && v[t * 40 + d] == 0;
        CHECK(v[t * 40 + d] == v[t * 40 + 20 + d]);  // the delta of a masked bin is masked, too
      }
      bands += empty;
    }
    CHECK(frames <= 12);  // two masks, each of at most a tenth of the frames
    CHECK(bands <= 16);
    masked += static_cast<double>(frames + bands);
  }
  CHECK(masked > 200);
  CHECK(masked < 700);
  apply_spec_augment(Tensor::zeros({0, 40}), options, RandomStream(1, "s"));
  CHECK(contains(message_of<ShapeError>([&] {
                   apply_spec_augment(Tensor::zeros({3, 40}), options, {}, 7);
                 }),
                 "multiple"));
}
