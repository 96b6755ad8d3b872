#include "train/reproduce/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 80, kRight = 560, kTop = 50, kBottom = 380;  // the plot; the legend is right of it
constexpr double kMostTicks = 7;
// Eight colours that people with the common kinds of colour blindness can tell apart (Okabe and Ito 2008).
constexpr std::array<const char*, 8> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                 "#E69F00", "#56B4E9", "#000000", "#F0E442"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else
      result += c;
  }
  return result;
}

double transformed(Scale scale, double value) {
  return scale == Scale::linear ? value : scale == Scale::log2 ? std::log2(value) : std::log10(value);
}

bool drawable(const Chart& chart, const std::pair<double, double>& point) {
  return std::isfinite(transformed(chart.x.scale, point.first)) &&
         std::isfinite(transformed(chart.y.scale, point.second));
}

struct Tick {
  double at;  // on the transformed axis
  std::string text;
};

// One axis: from transformed values to pixels.
struct Span {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double first_pixel = 0, last_pixel = 0;

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // A line along a border, or a single point, is hard to see.
  void widen() {
    const double margin = high > low ? 0.04 * (high - low) : 0.5;
    low -= margin;
    high += margin;
  }
  double pixel(double value) const {
    return first_pixel + (last_pixel - first_pixel) * (value - low) / (high - low);
  }
};

// Round numbers: 1, 2 or 5 times a power of ten apart, whole numbers at least on a logarithmic axis.
std::vector<Tick> ticks(const Span& span, Scale scale) {
  const double raw = (span.high - span.low) / kMostTicks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if ((step = factor * power) >= raw) break;
  if (scale != Scale::linear) step = std::max(std::round(step), 1.0);
  std::vector<Tick> result;
  for (double at = std::ceil(span.low / step) * step; at <= span.high; at += step) {
    const double value = scale == Scale::linear ? at : std::pow(scale == Scale::log2 ? 2 : 10, at);
    // Sums of steps that should be zero.
    result.push_back({at, fmt::format("{:.6g}", std::abs(value) < 1e-9 * step ? 0 : value)});
  }
  return result;
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1,
                     y1, x2, y2, colour);
}

std::string text(double x, double y, const char* anchor, const std::string& content, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped(content));
}

std::string axes(const Chart& chart, const Span& x, const Span& y) {
  std::string svg;
  for (const Tick& tick : ticks(x, chart.x.scale)) {
    svg += line(x.pixel(tick.at), kTop, x.pixel(tick.at), kBottom, "#dddddd");
    svg += text(x.pixel(tick.at), kBottom + 18, "middle", tick.text);
  }
  for (const Tick& tick : ticks(y, chart.y.scale)) {
    svg += line(kLeft, y.pixel(tick.at), kRight, y.pixel(tick.at), "#dddddd");
    svg += text(kLeft - 6, y.pixel(tick.at) + 4, "end", tick.text);
  }
  svg +=
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#444444\"/>\n",
                  kLeft, kTop, kRight - kLeft, kBottom - kTop);
  svg += text((kLeft + kRight) / 2, kBottom + 42, "middle", chart.x.label);
  const double middle = (kTop + kBottom) / 2;
  return svg + text(18, middle, "middle", chart.y.label,
                    fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle).c_str());
}

std::string curve(const Chart& chart, const Series& series, size_t index, const Span& x, const Span& y) {
  const char* const colour = kColours[index % kColours.size()];
  const char* const dashes = series.dashed ? " stroke-dasharray=\"6 4\"" : "";
  std::string points;
  for (const auto& point : series.points)
    if (drawable(chart, point))
      points += fmt::format("{:.1f},{:.1f} ", x.pixel(transformed(chart.x.scale, point.first)),
                            y.pixel(transformed(chart.y.scale, point.second)));
  const double row = kTop + 12 + 20 * static_cast<double>(index);
  return fmt::format(
             "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n"
             "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2.4\"{}/>\n",
             points, colour, dashes, kRight + 14, row, kRight + 40, row, colour, dashes) +
         text(kRight + 46, row + 4, "start", series.name);
}

}  // namespace

std::string to_svg(const Chart& chart) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text((kLeft + kRight) / 2, 28, "middle", chart.title, " font-size=\"16\"");
  Span x{.first_pixel = kLeft, .last_pixel = kRight}, y{.first_pixel = kBottom, .last_pixel = kTop};
  for (const Series& series : chart.series)
    for (const auto& point : series.points)
      if (drawable(chart, point)) {
        x.include(transformed(chart.x.scale, point.first));
        y.include(transformed(chart.y.scale, point.second));
      }
  if (x.low > x.high) return svg + text(kWidth / 2, kHeight / 2, "middle", "nothing measured") + "</svg>\n";
  x.widen();
  y.widen();
  svg += axes(chart, x, y);
  for (size_t i = 0; i < chart.series.size(); ++i) svg += curve(chart, chart.series[i], i, x, y);
  return svg + "</svg>\n";
}

}  // namespace tapeformer
