// Axes of charts: from values to points of the page, and the ticks with their labels.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "train/reproduce/chart.h"

namespace tapeformer {

// The value on the axis: its logarithm on a logarithmic axis.
double transformed(Scale scale, double value);

// The range of an axis, transformed, and its place on the page.
struct AxisRange {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  double first = 0, last = 0;  // points of the page

  void include(double value);
  // Adds margins: a line along a border, or a single point, is hard to see.
  void widen();
  double place(double value) const { return first + (last - first) * (value - low) / (high - low); }
};

struct Tick {
  double at;  // transformed
  std::string text;
};

// Ticks at round numbers, at least two in each range. Logarithmic axes have powers of their base; ranges with
// too few powers have multiples of powers of ten too, and narrow ranges have equal steps.
std::vector<Tick> axis_ticks(const AxisRange& range, Scale scale);

}  // namespace tapeformer
