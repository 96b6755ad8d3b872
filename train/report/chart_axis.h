// Axes of charts: conversion of values to positions on the page, and ticks with labels.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace tapeformer {

enum class Scale { linear, log2, log10 };

struct Axis {
  std::string label;
  Scale scale = Scale::linear;
};

// Returns "linear", "log2" or "log10".
std::string scale_name(Scale scale);
// Returns the scale with this name. Throws std::invalid_argument for another name.
Scale scale_of(const std::string& name);

// Returns the value on a linear axis, or its logarithm on a logarithmic axis.
double transformed(Scale scale, double value);

// Range of an axis in transformed values, and its position on the page.
struct AxisRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double first = 0, last = 0;  // positions of the ends of the axis on the page

  void include(double value);
  // Adds margins, so that no point lies on the border of the plot.
  void widen();
  double position(double value) const { return first + (last - first) * (value - low) / (high - low); }
};

struct Tick {
  double value;  // transformed by the scale
  std::string text;
};

// Returns at least two ticks at round numbers. Ticks of a logarithmic axis are powers of its base. If the
// range has too few powers, its ticks are 1, 2 and 5 times powers of ten, or equal steps in narrow ranges.
std::vector<Tick> axis_ticks(const AxisRange& range, Scale scale);

}  // namespace tapeformer
