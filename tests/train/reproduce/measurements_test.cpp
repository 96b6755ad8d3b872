#include "train/reproduce/measurements.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

TEST_CASE("fitted exponents are the powers of the longer half of the points") {
  CHECK(fit_power_law_exponent({{1, 3}, {2, 12}, {4, 48}}) == doctest::Approx(2));
  // The fit uses only the second half of the points. The constant values in the first half have no effect.
  CHECK(fit_power_law_exponent({{1, 9}, {2, 9}, {4, 9}, {8, 16}, {16, 32}, {32, 64}}) == doctest::Approx(1));
  CHECK(fit_power_law_exponent({{512, 5}, {1024, 5}}) == doctest::Approx(0));
  CHECK(std::isnan(fit_power_law_exponent({{512, 5}})));
  CHECK(list_doubled_lengths("longest", 300, 2400) == std::vector<int64_t>{300, 600, 1200, 2400});
  CHECK_THROWS_WITH_AS(list_doubled_lengths("longest", 300, 299),
                       "measure.longest = 299: expected at least 300", ConfigError);
}

TEST_CASE("scaling results have a value for each length and two curves") {
  const Row row{.name = "linear"};
  const Json rows = Json::parse(R"([{"length": 100, "seconds": 0.5, "peak_bytes": 1048576},
                                    {"length": 200, "seconds": 1.0, "peak_bytes": 4194304}])");
  const MeasurementResults measured = read_scaling_results(rows, row.name);
  const NamedValues expected{{"milliseconds_100", 500},    {"mebibytes_100", 1},
                             {"milliseconds_200", 1000},   {"mebibytes_200", 4},
                             {"milliseconds_exponent", 1}, {"mebibytes_exponent", 2}};
  REQUIRE(measured.values.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(measured.values[i].first == expected[i].first);
    CHECK(measured.values[i].second == doctest::Approx(expected[i].second));
  }
  REQUIRE(measured.curves.size() == 2);
  CHECK(measured.curves[0].figure_name == "time");
  CHECK(measured.curves[1].points[1] == std::pair<double, double>(200, 4));
}
