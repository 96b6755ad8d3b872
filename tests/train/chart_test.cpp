#include "train/reproduce/chart.h"

#include <doctest/doctest.h>

#include <cmath>
#include <regex>
#include <sstream>

using namespace tapeformer;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// The points of the n-th curve, in pixels.
std::vector<std::pair<double, double>> pixels(const std::string& svg, int n) {
  const std::regex pattern("<polyline points=\"([^\"]*)\"");
  auto found = std::sregex_iterator(svg.begin(), svg.end(), pattern);
  std::advance(found, n);
  std::istringstream stream((*found)[1]);
  std::vector<std::pair<double, double>> result;
  double x, y;
  char comma;
  while (stream >> x >> comma >> y) result.emplace_back(x, y);
  return result;
}

}  // namespace

TEST_CASE("points are placed by the scale of each axis") {
  const Chart chart{.title = "a < b & c",
                    .x = {"length", Scale::log2},
                    .y = {"seconds", Scale::log10},
                    .series = {{"square", {{512, 1}, {1024, 4}, {2048, 16}}, false},
                               {"line", {{512, 1}, {1024, 2}, {2048, 4}}, true}}};
  const std::string svg = to_svg(chart);
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(count(svg, "<polyline") == 2);
  CHECK(count(svg, "stroke-dasharray") == 2);  // the curve and its place in the legend
  const auto square = pixels(svg, 0), line = pixels(svg, 1);
  REQUIRE(square.size() == 3);
  // On logarithmic axes powers are straight lines, twice as steep for the square; pixels grow downwards.
  CHECK(square[2].first - square[1].first ==
        doctest::Approx(square[1].first - square[0].first).epsilon(0.01));
  CHECK(square[1].second - square[2].second ==
        doctest::Approx(square[0].second - square[1].second).epsilon(0.01));
  CHECK(square[0].second - square[2].second ==
        doctest::Approx(2 * (line[0].second - line[2].second)).epsilon(0.01));
  CHECK(square[0].second > square[2].second);
}

TEST_CASE("what cannot be drawn is left out") {
  Chart chart{.title = "", .x = {"x", Scale::linear}, .y = {"y", Scale::log10}, .series = {}};
  CHECK(to_svg(chart).find("nothing measured") != std::string::npos);
  chart.series = {{"curve", {{1, 0}, {2, NAN}, {3, -1}, {4, 5}}, false}};
  const std::string svg = to_svg(chart);
  CHECK(pixels(svg, 0).size() == 1);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}
