#include "core/random/rng.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

using namespace tapeformer;

TEST_CASE("Philox4x32-10 gives the published values of Random123") {
  CHECK(philox4x32(0, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32(~0ull, ~0ull, ~0ull) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random streams depend on seed, name and step, and repeat exactly") {
  std::set<double> seen;
  for (uint64_t seed : {1, 2})
    for (const char* name : {"dropout", "shuffle"})
      for (uint64_t step : {0, 1}) seen.insert(RandomStream(seed, name, step).uniform(5));
  CHECK(seen.size() == 8);
  CHECK(RandomStream(1, "dropout", 3).uniform(5) == RandomStream(1, "dropout").at_step(3).uniform(5));
}

TEST_CASE("uniform numbers are inside the open interval (0, 1), also for extreme random bits") {
  const uint32_t ones = 0xffffffff;
  CHECK(RandomStream::to_open_interval({ones, ones, 0, 0}) < 1);
  CHECK(RandomStream::to_open_interval({ones, ones, 0, 0}) > 1 - 1e-15);
  CHECK(RandomStream::to_open_interval({0, 0, 0, 0}) > 0);
}

TEST_CASE("the moments of uniform, normal and below match their distributions") {
  const RandomStream stream(7, "moments");
  constexpr int kCount = 100000;
  double mean = 0, square = 0, fourth = 0, uniform = 0;
  int low = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.normal(i);
    mean += x / kCount;
    square += x * x / kCount;
    fourth += x * x * x * x / kCount;
    uniform += stream.uniform(i) / kCount;
    low += stream.uniform_below(i, 10) < 3;
  }
  CHECK(std::abs(mean) < 0.015);
  CHECK(std::abs(square - 1) < 0.02);
  CHECK(std::abs(fourth - 3) < 0.15);
  CHECK(std::abs(uniform - 0.5) < 0.004);
  CHECK(std::abs(low / double(kCount) - 0.3) < 0.006);
}
