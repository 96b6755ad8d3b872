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
std::string get_scale_name(Scale scale);
// Returns whether charts show a value on an axis with this scale. Charts leave out values that are not
// finite, values with a magnitude above 1e200, and on a logarithmic axis also values below 1e-200.
bool is_drawable(Scale scale, double value);
// Returns the scale with the name `name`. Throws std::invalid_argument if `name` is unknown.
Scale parse_scale(const std::string& name);

// Returns `value` for a linear scale, or the logarithm of `value` for a logarithmic scale.
double apply_axis_scale(Scale scale, double value);

// The range of the values of an axis after apply_axis_scale(), and the position of the axis on the page.
struct AxisRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double first_position = 0, last_position = 0;  // positions of the ends of the axis on the page

  void include(double value);
  // Extends the range at both ends, so that no point lies on the border of the plot.
  void widen();
  double position(double value) const {
    return first_position + (last_position - first_position) * (value - low) / (high - low);
  }
};

struct Tick {
  double value;  // transformed by the scale
  std::string label;
};

// Returns the ticks of an axis. On a linear axis, the ticks are multiples of a number that is 1, 2 or 5 times
// a power of ten. On a logarithmic axis, the function returns the first of these lists that has at least
// three ticks in `range`, or the last list:
// - powers of the base of the logarithm
// - 1, 2 and 5 times powers of ten
// - the ticks of a linear axis with the same range of values
std::vector<Tick> make_axis_ticks(const AxisRange& range, Scale scale);

}  // namespace tapeformer
