#include "train/report/chart.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <regex>
#include <sstream>

#include "tests/support/temp_dir.h"
#include "train/report/chart_axis.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Returns the points (x, y) of the curve with index n in an SVG image, in pixels. The first curve has index
// 0.
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

TEST_CASE("circles have areas in proportion to the values, and names that do not overlap") {
  const Chart chart{.title = "accuracy",
                    .x = {"milliseconds", Scale::log10},
                    .y = {"accuracy", Scale::linear},
                    .series = {{.name = "full", .points = {{100, 50}}, .error_bars = {2}, .circle_area = 64},
                               {.name = "half", .points = {{100, 50}}, .circle_area = 16},
                               {.name = "none", .points = {{10, 40}}, .circle_area = 0}},
                    .circle_area_unit = "MiB"};
  const std::string svg = to_svg(chart);
  CHECK(count(svg, "<polyline") == 0);
  const auto values = [&](const std::string& pattern) {
    std::vector<double> found;
    const std::regex expression(pattern);
    for (auto each = std::sregex_iterator(svg.begin(), svg.end(), expression); each != std::sregex_iterator();
         ++each)
      found.push_back(std::stod((*each)[1]));
    return found;
  };
  const auto radii = values("<circle [^>]* r=\"([0-9.]+)\"");
  REQUIRE(radii.size() == 3);
  CHECK(radii[0] == doctest::Approx(2 * radii[1]));
  CHECK(radii[2] > 0);
  const auto names = values("<text x=[^>]* y=\"([0-9.]+)\" text-anchor=\"start\"[^>]*>(?:full|half)<");
  REQUIRE(names.size() == 2);
  CHECK(std::abs(names[1] - names[0]) > 6);
  CHECK(count(svg, "area of the largest circle: 64 MiB") == 1);
}

TEST_CASE("positions of points follow the scales of the axes") {
  const Chart chart{.title = "a < b & c",
                    .x = {"length", Scale::log2},
                    .y = {"seconds", Scale::log10},
                    .series = {{"square", {{512, 1}, {1024, 4}, {2048, 16}}, false},
                               {"line", {{512, 1}, {1024, 2}, {2048, 4}}, true}}};
  const std::string svg = to_svg(chart);
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(count(svg, "<polyline") == 2);
  CHECK(count(svg, "stroke-dasharray=\"1 2\"") == 2);  // the expected curve and its legend
  CHECK(count(svg, "<circle") == 3 + 1);               // markers of the measured curve and its legend
  const auto square = pixels(svg, 0), line = pixels(svg, 1);
  REQUIRE(square.size() == 3);
  // On logarithmic axes, a power law is a straight line, and its exponent is the slope. The y coordinates of
  // SVG grow downwards.
  CHECK(square[2].first - square[1].first ==
        doctest::Approx(square[1].first - square[0].first).epsilon(0.01));
  CHECK(square[1].second - square[2].second ==
        doctest::Approx(square[0].second - square[1].second).epsilon(0.01));
  CHECK(square[0].second - square[2].second ==
        doctest::Approx(2 * (line[0].second - line[2].second)).epsilon(0.01));
  CHECK(square[0].second > square[2].second);
}

TEST_CASE("points that are not finite or have no logarithm are left out") {
  Chart chart{.title = "", .x = {"x", Scale::linear}, .y = {"y", Scale::log10}, .series = {}};
  CHECK(to_svg(chart).find("nothing measured") != std::string::npos);
  chart.series = {{"curve", {{1, 0}, {2, NAN}, {3, -1}, {4, 5}}, false}};
  const std::string svg = to_svg(chart);
  CHECK(pixels(svg, 0).size() == 1);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("charts with values near the limits of double have finite axes") {
  const double largest = 1.7e308, smallest = 5e-324;
  for (const Scale scale : {Scale::linear, Scale::log2, Scale::log10})
    for (const double value : {largest, -largest, smallest, 1e200, 1e-200}) {
      CAPTURE(get_scale_name(scale));
      CAPTURE(value);
      const std::string svg = to_svg({.title = "",
                                      .x = {"x", scale},
                                      .y = {"y", scale},
                                      .series = {{"curve", {{1, value}, {value, 2}, {2, 3}}, false}}});
      const bool is_shown =
          value == 1e200 || value == 1e-200 || (scale == Scale::linear && value == smallest);
      CHECK(pixels(svg, 0).size() == (is_shown ? 3 : 1));
      CHECK(svg.find("nan") == std::string::npos);
      CHECK(svg.find("inf") == std::string::npos);
    }
}

TEST_CASE("a logarithmic axis over less than a decade has labels") {
  for (const auto& limits : {std::pair{20.0, 80.0}, {1.1, 1.9}, {3.0, 3.2}, {0.0012, 0.0013}, {7.0, 7.0}})
    for (const Scale scale : {Scale::log2, Scale::log10}) {
      const double low = limits.first, high = limits.second;
      CAPTURE(low);
      CAPTURE(high);
      AxisRange range;
      range.include(apply_axis_scale(scale, low));
      range.include(apply_axis_scale(scale, high));
      range.widen();
      const std::vector<Tick> ticks = make_axis_ticks(range, scale);
      CHECK(ticks.size() >= 2);
      CHECK(ticks.size() <= 13);
      for (const Tick& tick : ticks) {
        CHECK(tick.value >= range.low);
        CHECK(tick.value <= range.high);
        CHECK(apply_axis_scale(scale, std::stod(tick.label)) == doctest::Approx(tick.value));
      }
      for (size_t i = 1; i < ticks.size(); ++i) CHECK(ticks[i].label != ticks[i - 1].label);
    }
}

TEST_CASE("wide logarithmic axes have powers as ticks, and labels of close ticks differ") {
  AxisRange wide{.low = -3.1, .high = 4.1};
  std::vector<std::string> labels;
  for (const Tick& tick : make_axis_ticks(wide, Scale::log10)) labels.push_back(tick.label);
  CHECK(labels == std::vector<std::string>{"0.01", "1", "100", "10000"});
  labels.clear();
  for (const Tick& tick : make_axis_ticks({.low = -0.5, .high = 2.5}, Scale::linear))
    labels.push_back(tick.label);
  CHECK(labels.front() == "-0.5");
  CHECK(labels[1] == "0");
  labels.clear();
  for (const Tick& tick : make_axis_ticks({.low = 12345678, .high = 12345682}, Scale::linear))
    labels.push_back(tick.label);
  CHECK(labels == std::vector<std::string>{"12345678", "12345679", "12345680", "12345681", "12345682"});
}

TEST_CASE("a curve with one point has a marker, and coinciding curves differ in marker, dashes and width") {
  Chart chart{.title = "", .x = {"x"}, .y = {"y"}, .series = {{"one", {{3, 5}}}}};
  CHECK(count(to_svg(chart), "<circle") == 2);  // the point and the legend
  const std::vector<std::pair<double, double>> points = {{1, 1}, {2, 2}, {3, 3}};
  chart.series = {{"a", points}, {"b", points}, {"c", points}};
  const std::string svg = to_svg(chart);
  const std::regex pattern("<polyline points=\"([^\"]*)\" fill=\"none\" stroke=\"[^\"]*\" ([^/]*)/>");
  std::vector<std::string> corners, styles;
  for (auto it = std::sregex_iterator(svg.begin(), svg.end(), pattern); it != std::sregex_iterator(); ++it) {
    corners.push_back((*it)[1]);
    styles.push_back((*it)[2]);
  }
  REQUIRE(styles.size() == 3);
  CHECK((corners[0] == corners[1] && corners[1] == corners[2]));
  CHECK((styles[0] != styles[1] && styles[1] != styles[2] && styles[0] != styles[2]));
  CHECK(styles[0].find("dasharray") == std::string::npos);
  CHECK(styles[1].find("dasharray") != std::string::npos);
  CHECK(count(svg, "fill=\"none\" stroke=\"#0072B2\" stroke-width=\"0.9\"") == 4);  // outlines of markers
}

TEST_CASE("long curves have twelve markers") {
  Chart chart{.title = "", .x = {"x"}, .y = {"y"}, .series = {{"long", {}}}};
  for (int i = 0; i < 1000; ++i) chart.series[0].points.emplace_back(i, i % 7);
  CHECK(count(to_svg(chart), "<circle") == 12 + 1);
}

TEST_CASE("error bars have the length of their errors, and the axis includes them") {
  Chart chart{.title = "", .x = {"x"}, .y = {"y"}, .series = {{"a", {{1, 10}, {2, 20}, {3, 30}}}}};
  const auto vertical_bars = [&] {
    const std::string svg = to_svg(chart);
    const std::regex pattern(
        "<line x1=\"([^\"]*)\" y1=\"([^\"]*)\" x2=\"\\1\" y2=\"([^\"]*)\" stroke=\"#0072B2\"");
    std::vector<double> lengths;
    for (auto it = std::sregex_iterator(svg.begin(), svg.end(), pattern); it != std::sregex_iterator(); ++it)
      lengths.push_back(std::stod((*it)[2]) - std::stod((*it)[3]));
    return lengths;
  };
  CHECK(vertical_bars().empty());
  chart.series[0].error_bars = {2, NAN, 4};
  const auto lengths = vertical_bars();
  REQUIRE(lengths.size() == 2);
  CHECK(lengths[1] == doctest::Approx(2 * lengths[0]).epsilon(0.01));
  const double pixels_per_unit =
      (pixels(to_svg(chart), 0)[0].second - pixels(to_svg(chart), 0)[2].second) / 20;
  CHECK(lengths[0] == doctest::Approx(4 * pixels_per_unit).epsilon(0.01));
  chart.y.scale = Scale::log10;
  // On a logarithmic axis, an error bar can extend to 0 or below 0.
  chart.series[0].error_bars = {10, 0, 100};
  CHECK(vertical_bars().size() == 2);
  CHECK(to_svg(chart).find("nan") == std::string::npos);
  CHECK(to_svg(chart).find("inf") == std::string::npos);
  chart.series[0].error_bars = {1};
  CHECK_THROWS_WITH_AS(to_svg(chart), "chart: series \"a\" has 3 points and 1 errors", std::invalid_argument);
}

TEST_CASE("long curves have error bars only at their markers") {
  Chart chart{.title = "", .x = {"x"}, .y = {"y"}, .series = {{"long", {}}}};
  for (int i = 0; i < 1000; ++i) chart.series[0].points.emplace_back(i, i % 7);
  chart.series[0].error_bars.assign(1000, 0.5);
  constexpr size_t kLinesPerBar = 3;
  const std::string svg = to_svg(chart);
  CHECK(count(svg, "stroke-width=\"0.7\"") == 12 * kLinesPerBar);
}

TEST_CASE("a chart without drawable points has no error bars") {
  Chart chart{.title = "", .x = {"x"}, .y = {"y", Scale::log10}, .series = {{"a", {{1, 0}, {2, NAN}}}}};
  chart.series[0].error_bars = {5, 5};
  const std::string svg = to_svg(chart);
  CHECK(contains(svg, "nothing measured"));
  CHECK(count(svg, "<line") == 0);
}

TEST_CASE("a chart has the width of a column, and is written as PDF if rsvg-convert is installed") {
  const TempDir dir;
  const Chart chart{.title = "", .x = {"x"}, .y = {"y"}, .series = {{"a", {{1, 1}}}}};
  CHECK(to_svg(chart).find("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"252pt\"") == 0);
  write_file(dir / "rsvg-convert", std::string("#!/bin/sh\necho \"PDF $1\"\n"));
  chmod((dir / "rsvg-convert").c_str(), 0755);
  const std::string path = getenv("PATH");
  setenv("PATH", ("/nowhere:" + dir.path().string() + ":" + path).c_str(), 1);
  write_chart(dir / "with", chart);
  setenv("PATH", "/nowhere", 1);
  write_chart(dir / "without", chart);
  setenv("PATH", path.c_str(), 1);
  CHECK(read_file((dir / "with.svg").string()) == to_svg(chart));
  CHECK(read_file((dir / "with.pdf").string()) == "PDF --format=pdf\n");
  CHECK(std::filesystem::exists(dir / "without.svg"));
  CHECK(!std::filesystem::exists(dir / "without.pdf"));
}
