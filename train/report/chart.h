// Line charts for `tapeformer reproduce` and `tapeformer report`, as SVG and, if the program rsvg-convert is
// installed, as PDF. Curves differ in colour, marker and dashes, so that they can be distinguished in print
// without colour.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "train/report/chart_axis.h"

namespace tapeformer {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y), connected in this order
  bool is_reference = false;                      // whether to draw a thin dotted line without markers
  // Errors of the y-coordinates of the points, such as standard deviations. The error bar of a point extends
  // from y - error to y + error. If an error is 0 or the list is empty, no error bar is drawn. In long
  // curves, error bars are drawn only at some of the points.
  std::vector<double> error_bars = {};
  double circle_area = 0;  // relative area of the circles at the points, if Chart::circle_area_unit is set
};

inline constexpr double kColumnWidth = 252;  // width in points of a text column on a two-column page

struct Chart {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  double width = kColumnWidth;  // width of the chart in points of 1/72 inch
  // Unit of Series::circle_area, such as "MiB". If `circle_area_unit` is not empty, the chart shows circles
  // with the names of the series instead of curves and a legend.
  std::string circle_area_unit = {};
};

// Returns the chart as SVG. Leaves out points that are not finite, or not positive on a logarithmic axis. A
// chart without points shows the text "nothing measured" instead of axes. Throws std::invalid_argument if a
// series has error bars, but their number differs from the number of points.
std::string to_svg(const Chart& chart);

// Writes `path_stem`.svg and, if the program rsvg-convert is installed, `path_stem`.pdf. Throws FileError.
void write_chart(const std::filesystem::path& path_stem, const Chart& chart);

}  // namespace tapeformer
