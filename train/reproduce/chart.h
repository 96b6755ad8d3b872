// Line charts for the figures of `tapeformer reproduce`: SVG, and PDF where librsvg's program is installed.
//
// Curves differ in colour, marker and dashes, so that they can be told apart in grey print and where they
// coincide. Plain values; any thread.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

enum class Scale { linear, log2, log10 };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // in the order of the line
  bool expected = false;                          // not measured: a thin dotted line without markers
  // Half the length of the error bar of each point on the y axis, such as a standard deviation. Empty, 0 and
  // values that are not finite: no bar.
  std::vector<double> errors = {};
};

inline constexpr double kColumnWidth = 252;  // points of 1/72 inch: a column of a page of two columns

struct Chart {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
  double width = kColumnWidth;  // points
};

// Points that are not finite, or not positive on a logarithmic axis, are left out. A chart without points
// says "nothing measured" instead of showing axes. Throws std::invalid_argument if a series has errors, but
// not one for each point.
std::string to_svg(const Chart& chart);

// Writes `stem`.svg and, if the program rsvg-convert is installed, `stem`.pdf. Throws FileError.
void write_chart(const std::filesystem::path& stem, const Chart& chart);

}  // namespace tapeformer
