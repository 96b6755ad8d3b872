// Line charts as SVG, for the figures of `tapeformer reproduce`. Plain values; any thread.
#pragma once

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
  bool dashed = false;                            // for what is expected rather than measured
};

struct Chart {
  std::string title;
  Axis x, y;
  std::vector<Series> series;
};

// Points that are not finite, or not positive on a logarithmic axis, are left out; a chart without any point
// says so instead of showing axes.
std::string to_svg(const Chart& chart);

}  // namespace tapeformer
