#include "train/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/command.h"
#include "train/report/chart_axis.h"
#include "train/report/html.h"

namespace tapeformer {
namespace {

// Font sizes and lengths in points.
constexpr double kFont = 7.5, kTitleFont = 8.5, kTickFont = 6.5;
constexpr double kLeft = 40, kRightMargin = 8, kTop = 20;
constexpr double kPlotHeight = 0.62;  // height of the plot relative to the width of the chart
constexpr double kBelowPlot = 32, kLegendRow = 11, kLegendSample = 24;
constexpr double kMarker = 2.4;     // radius of a marker
constexpr size_t kMaxMarkers = 12;  // maximum number of markers per curve
constexpr double kMaxLineWidth = 1.9, kMinLineWidth = 0.9;
// Eight colours that people with the common kinds of colour blindness can tell apart (Okabe and Ito 2008).
// Yellow is the last colour, because it is hard to see on paper.
constexpr std::array<const char*, 8> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000", "#F0E442"};
constexpr std::array<const char*, 5> kDashes = {"", "5 2", "2 1.5", "6 2 1.5 2", "9 3"};
constexpr int kMarkerShapes = 6;
constexpr double kLargestRadius = 16, kSmallestRadius = 1.5;  // radii of circles in points

std::string draw_line(double x1, double y1, double x2, double y2, const std::string& stroke) {
  return fmt::format("<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" {}/>\n", x1, y1, x2, y2,
                     stroke);
}

std::string draw_text(double x, double y, const char* anchor, const std::string& content,
                      const std::string& attributes = "") {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     attributes, escape_html(content));
}

// Returns a marker, whose shape depends on `index`. Markers are not filled, so that coinciding points remain
// visible.
std::string draw_marker(size_t index, double x, double y, const char* colour) {
  const double r = kMarker;
  const std::string style = fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"0.9\"", colour);
  const auto path = [&](const std::string& d) { return fmt::format("<path d=\"{}\" {}/>\n", d, style); };
  switch (index % kMarkerShapes) {
    case 0:
      return fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\" {}/>\n", x, y, r, style);
    case 1:
      return path(fmt::format("M{:.2f} {:.2f}h{}v{}h-{}z", x - r, y - r, 2 * r, 2 * r, 2 * r));
    case 2:
      return path(fmt::format("M{:.2f} {:.2f}l{} {}h-{}z", x, y - 1.2 * r, 1.2 * r, 2.2 * r, 2.4 * r));
    case 3:
      return path(fmt::format("M{:.2f} {:.2f}l{} {}l-{} {}l-{} -{}z", x, y - 1.4 * r, 1.4 * r, 1.4 * r,
                              1.4 * r, 1.4 * r, 1.4 * r, 1.4 * r));
    case 4:
      return path(
          fmt::format("M{:.2f} {:.2f}l{} {}m0 -{}l-{} {}", x - r, y - r, 2 * r, 2 * r, 2 * r, 2 * r, 2 * r));
    default:
      return path(
          fmt::format("M{:.2f} {:.2f}h{}m-{} -{}v{}", x - 1.2 * r, y, 2.4 * r, 1.2 * r, 1.2 * r, 2.4 * r));
  }
}

const char* select_colour(size_t index) {
  return kColours[index % kColours.size()];
}

// Returns the stroke of a curve. Each curve is drawn on top of the earlier curves of the chart. Later curves
// are thinner, so that earlier curves remain visible.
std::string select_stroke(const Series& series, size_t index) {
  const double width = series.is_reference
                           ? kMinLineWidth
                           : std::max(kMinLineWidth, kMaxLineWidth - 0.25 * static_cast<double>(index));
  const std::string dashes = series.is_reference ? "1 2" : kDashes[index % kDashes.size()];
  return fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}", select_colour(index), width,
                     dashes.empty() ? "" : " stroke-dasharray=\"" + dashes + "\"");
}

struct PagePoint {
  double x, y;
  double low = 0, high = 0;  // ends of the error bar, if `bar` is true
  bool bar = false;
};

class Plot {
 public:
  explicit Plot(const Chart& chart)
      : chart_(chart),
        right_(chart.width - kRightMargin),
        bottom_(kTop + kPlotHeight * chart.width),
        x_{.first_position = kLeft, .last_position = right_},
        y_{.first_position = bottom_, .last_position = kTop} {
    size_t longest = 0;
    for (const Series& series : chart.series) {
      longest = std::max(longest, series.name.size());
      largest_area_ = std::max(largest_area_, series.circle_area);
    }
    const double needed = kLegendSample + 6 + 0.55 * kFont * static_cast<double>(longest);
    columns_ = std::clamp<size_t>(static_cast<size_t>((right_ - kLeft) / needed), 1, 3);
    include_points();
  }
  bool empty() const { return x_.low > x_.high; }
  double height() const {
    if (has_circles()) return bottom_ + kBelowPlot;
    const size_t rows = (chart_.series.size() + columns_ - 1) / columns_;
    return bottom_ + kBelowPlot + kLegendRow * static_cast<double>(rows);
  }
  std::string draw() {
    x_.widen();
    y_.widen();
    std::string svg = axes();
    if (has_circles()) return svg + circles();
    for (size_t i = 0; i < chart_.series.size(); ++i) svg += curve(chart_.series[i], i) + legend(i);
    return svg;
  }

 private:
  bool has_circles() const { return !chart_.circle_area_unit.empty(); }
  bool drawable(const std::pair<double, double>& point) const {
    return is_drawable(chart_.x.scale, point.first) && is_drawable(chart_.y.scale, point.second);
  }
  static double error_of(const Series& series, size_t i) {
    return series.error_bars.empty() || !std::isfinite(series.error_bars[i]) ? 0
                                                                             : std::abs(series.error_bars[i]);
  }
  // Returns the end of an error bar, transformed by the scale of the y-axis and limited to the range of the
  // y-axis. On a logarithmic axis, an error bar whose end is not positive ends at the border of the plot.
  double bar_end(double value) const {
    const double at = apply_axis_scale(chart_.y.scale, value);
    return std::isfinite(at) ? std::clamp(at, y_.low, y_.high) : y_.low;
  }
  void include_points() {
    for (const Series& series : chart_.series) {
      if (!series.error_bars.empty() && series.error_bars.size() != series.points.size())
        throw std::invalid_argument(fmt::format("chart: series \"{}\" has {} points and {} errors",
                                                series.name, series.points.size(), series.error_bars.size()));
      for (size_t i = 0; i < series.points.size(); ++i) {
        if (!drawable(series.points[i])) continue;
        x_.include(apply_axis_scale(chart_.x.scale, series.points[i].first));
        for (const double side : {-1, 0, 1}) {
          const double end = series.points[i].second + side * error_of(series, i);
          if (is_drawable(chart_.y.scale, end)) y_.include(apply_axis_scale(chart_.y.scale, end));
        }
      }
    }
  }
  std::vector<PagePoint> page_points(const Series& series) const {
    std::vector<PagePoint> result;
    for (size_t i = 0; i < series.points.size(); ++i) {
      const auto& [x, y] = series.points[i];
      if (!drawable(series.points[i])) continue;
      PagePoint point{.x = x_.position(apply_axis_scale(chart_.x.scale, x)),
                      .y = y_.position(apply_axis_scale(chart_.y.scale, y))};
      if (const double error = error_of(series, i); error > 0) {
        point.bar = true;
        point.low = y_.position(bar_end(y - error));
        point.high = y_.position(bar_end(y + error));
      }
      result.push_back(point);
    }
    return result;
  }
  std::string axes() const;
  std::string curve(const Series& series, size_t index) const;
  std::string legend(size_t index) const;
  std::string circles() const;

  const Chart& chart_;
  double right_, bottom_;
  AxisRange x_, y_;
  size_t columns_;
  double largest_area_ = 0;
};

std::string Plot::axes() const {
  const std::string grid = "stroke=\"#dddddd\" stroke-width=\"0.5\"";
  const std::string small = fmt::format(" font-size=\"{}\"", kTickFont);
  std::string svg;
  for (const Tick& tick : make_axis_ticks(x_, chart_.x.scale)) {
    svg += draw_line(x_.position(tick.value), kTop, x_.position(tick.value), bottom_, grid);
    svg += draw_text(x_.position(tick.value), bottom_ + 9, "middle", tick.label, small);
  }
  for (const Tick& tick : make_axis_ticks(y_, chart_.y.scale)) {
    svg += draw_line(kLeft, y_.position(tick.value), right_, y_.position(tick.value), grid);
    svg += draw_text(kLeft - 3, y_.position(tick.value) + 2.3, "end", tick.label, small);
  }
  svg += fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"none\" stroke=\"#444444\" "
      "stroke-width=\"0.6\"/>\n",
      kLeft, kTop, right_ - kLeft, bottom_ - kTop);
  svg += draw_text((kLeft + right_) / 2, bottom_ + 19, "middle", chart_.x.label);
  const double middle = (kTop + bottom_) / 2;
  return svg + draw_text(8, middle, "middle", chart_.y.label,
                         fmt::format(" transform=\"rotate(-90 8 {:.2f})\"", middle));
}

std::string Plot::curve(const Series& series, size_t index) const {
  const std::vector<PagePoint> points = page_points(series);
  const char* const colour = select_colour(index);
  std::string corners, marks;
  // Every `every`-th point has a marker and an error bar, so that a curve has at most kMaxMarkers markers.
  // The first point with a marker depends on the index of the curve, so that the markers of long curves with
  // equal points do not overlap.
  const size_t every = (points.size() + kMaxMarkers - 1) / kMaxMarkers;
  for (size_t i = 0; i < points.size(); ++i) {
    const PagePoint& p = points[i];
    corners += fmt::format("{:.2f},{:.2f} ", p.x, p.y);
    if (i % every != index % every) continue;
    if (!series.is_reference) marks += draw_marker(index, p.x, p.y, colour);
    if (!p.bar) continue;
    const std::string stroke = fmt::format("stroke=\"{}\" stroke-width=\"0.7\"", colour);
    marks += draw_line(p.x, p.low, p.x, p.high, stroke);
    for (const double end : {p.low, p.high}) marks += draw_line(p.x - 2, end, p.x + 2, end, stroke);
  }
  return fmt::format("<polyline points=\"{}\" {}/>\n", corners, select_stroke(series, index)) + marks;
}

// Returns the points as circles with the names of their series. A name moves down until it overlaps no circle
// and no other name. A line connects the circle with the nearer end of the name.
std::string Plot::circles() const {
  struct Box {
    double left, middle, width, height;
  };
  const auto do_overlap = [](const Box& a, const Box& b) {
    return std::abs(a.middle - b.middle) < (a.height + b.height) / 2 && a.left < b.left + b.width &&
           b.left < a.left + a.width;
  };
  const auto compute_radius = [this](const Series& series) {
    const double share = largest_area_ > 0 ? std::sqrt(series.circle_area / largest_area_) : 0;
    return std::max(kSmallestRadius, kLargestRadius * share);
  };
  std::vector<Box> boxes;
  for (const Series& series : chart_.series)
    for (const PagePoint& p : page_points(series))
      boxes.push_back(
          {p.x - compute_radius(series), p.y, 2 * compute_radius(series), 2 * compute_radius(series)});
  std::string svg;
  for (size_t i = 0; i < chart_.series.size(); ++i) {
    const Series& series = chart_.series[i];
    const double radius = compute_radius(series);
    for (const PagePoint& p : page_points(series)) {
      svg += fmt::format(
          "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{:.2f}\" fill=\"{}\" fill-opacity=\"0.35\" "
          "stroke=\"#444444\" stroke-width=\"0.5\"/>\n",
          p.x, p.y, radius, select_colour(i));
      if (p.bar) svg += draw_line(p.x, p.low, p.x, p.high, "stroke=\"#444444\" stroke-width=\"0.5\"");
      Box name{p.x + radius + 2, p.y, 0.6 * kTickFont * static_cast<double>(series.name.size()), kTickFont};
      if (name.left + name.width > right_) name.left = p.x - radius - 4 - name.width;
      while (std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return do_overlap(name, box); }))
        name.middle += 1;
      boxes.push_back(name);
      const bool is_left = name.left < p.x;
      svg +=
          draw_line(is_left ? p.x - radius : p.x + radius, p.y, is_left ? name.left + name.width : name.left,
                    name.middle, "stroke=\"#999999\" stroke-width=\"0.4\"");
      svg += draw_text(name.left + 1, name.middle + 2, "start", series.name,
                       fmt::format(" font-size=\"{}\"", kTickFont));
    }
  }
  const std::string note =
      fmt::format("area of the largest circle: {:.3g} {}", largest_area_, chart_.circle_area_unit);
  return svg + draw_text(right_, bottom_ + 19, "end", note, fmt::format(" font-size=\"{}\"", kTickFont));
}

std::string Plot::legend(size_t index) const {
  const Series& series = chart_.series[index];
  const double column = (right_ - kLeft) / static_cast<double>(columns_);
  const double x = kLeft + column * static_cast<double>(index % columns_);
  const double y = bottom_ + kBelowPlot + kLegendRow * static_cast<double>(index / columns_);
  std::string svg = draw_line(x, y, x + kLegendSample, y, select_stroke(series, index));
  if (!series.is_reference) svg += draw_marker(index, x + kLegendSample / 2, y, select_colour(index));
  return svg + draw_text(x + kLegendSample + 4, y + 2.6, "start", series.name);
}

}  // namespace

std::string to_svg(const Chart& chart) {
  Plot plot(chart);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}pt\" height=\"{1:.0f}pt\" viewBox=\"0 0 {0} "
      "{1:.0f}\" font-family=\"sans-serif\" font-size=\"{2}\">\n<rect width=\"{0}\" height=\"{1:.0f}\" "
      "fill=\"white\"/>\n",
      chart.width, plot.height(), kFont);
  svg += draw_text(chart.width / 2, 13, "middle", chart.title, fmt::format(" font-size=\"{}\"", kTitleFont));
  svg += plot.empty() ? draw_text(chart.width / 2, plot.height() / 2, "middle", "nothing measured")
                      : plot.draw();
  return svg + "</svg>\n";
}

void write_chart(const std::filesystem::path& path_stem, const Chart& chart) {
  const std::string svg = path_stem.string() + ".svg", pdf = path_stem.string() + ".pdf";
  replace_file(svg, to_svg(chart));
  try {
    replace_file(pdf, CommandOutput(Words{"rsvg-convert", "--format=pdf", svg}, {.max_seconds = 60}).text());
  } catch (const DataError&) {
    log_info(pdf, " is not written: it needs the program rsvg-convert (librsvg2-bin)");
  }
}

}  // namespace tapeformer
