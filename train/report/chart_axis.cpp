#include "train/report/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

namespace tapeformer {
namespace {

constexpr std::array<const char*, 3> kScaleNames = {"linear", "log2", "log10"};
constexpr double kMaxTicks = 6;
// A logarithmic axis has ticks at powers of its base. If the range of the axis contains fewer than kMinTicks
// powers of the base, the distances between ticks are smaller.
constexpr size_t kMinTicks = 3;
// Charts do not draw values with a magnitude above kLargestMagnitude, and on logarithmic axes values below
// kSmallestMagnitude, so that the ends of an axis and their powers are finite. If the range of an axis is
// below kSmallestMagnitude, its values count as equal.
constexpr double kSmallestMagnitude = 1e-200, kLargestMagnitude = 1e200;

double invert_transform(Scale scale, double at) {
  return scale == Scale::linear ? at : std::pow(scale == Scale::log2 ? 2 : 10, at);
}

// Returns the smallest number that is not less than `raw` and is 1, 2 or 5 times a power of ten.
double find_round_step(double raw) {
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

// Returns the value as text with enough digits to distinguish values that are `step` apart.
std::string format_tick(double value, double step) {
  const double size = std::abs(value) / step;
  const int digits = size > 1 ? static_cast<int>(std::ceil(std::log10(size))) + 1 : 1;
  return fmt::format("{:.{}g}", value, std::clamp(digits, 6, 15));
}

// Returns ticks at multiples of a number from find_round_step(). The scale may be linear or logarithmic.
std::vector<Tick> make_even_ticks(const AxisRange& range, Scale scale) {
  const double low = invert_transform(scale, range.low), high = invert_transform(scale, range.high);
  const double step = find_round_step((high - low) / kMaxTicks);
  std::vector<Tick> result;
  const double first = std::ceil(low / step);
  for (double n = first; n * step <= high; ++n) {
    const double value = n * step + 0.0;  // turns -0 into 0
    if (scale == Scale::linear || value > 0)
      result.push_back({apply_axis_scale(scale, value), format_tick(value, step)});
  }
  return result;
}

std::vector<Tick> make_power_ticks(const AxisRange& range, Scale scale) {
  const double step = std::max(1.0, std::ceil(find_round_step((range.high - range.low) / kMaxTicks)));
  std::vector<Tick> result;
  for (double at = std::ceil(range.low / step) * step; at <= range.high; at += step)
    result.push_back({at, fmt::format("{:.6g}", invert_transform(scale, at))});
  return result;
}

// Returns ticks at 1, 2 and 5 times powers of ten.
std::vector<Tick> make_multiple_ticks(const AxisRange& range, Scale scale) {
  std::vector<Tick> result;
  const double low = invert_transform(scale, range.low), high = invert_transform(scale, range.high);
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power)
    for (const double factor : {1, 2, 5}) {
      const double value = factor * std::pow(10, power);
      if (value >= low && value <= high)
        result.push_back({apply_axis_scale(scale, value), fmt::format("{:.6g}", value)});
    }
  return result;
}

}  // namespace

std::string get_scale_name(Scale scale) {
  return kScaleNames[static_cast<size_t>(scale)];
}

Scale parse_scale(const std::string& name) {
  const auto found = std::find(kScaleNames.begin(), kScaleNames.end(), name);
  if (found == kScaleNames.end()) throw std::invalid_argument("unknown scale of an axis: " + name);
  return static_cast<Scale>(found - kScaleNames.begin());
}

double apply_axis_scale(Scale scale, double value) {
  return scale == Scale::linear ? value : scale == Scale::log2 ? std::log2(value) : std::log10(value);
}

bool is_drawable(Scale scale, double value) {
  return scale == Scale::linear ? std::abs(value) <= kLargestMagnitude
                                : value >= kSmallestMagnitude && value <= kLargestMagnitude;
}

void AxisRange::include(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

void AxisRange::widen() {
  // If all values are nearly equal, the margin is relative to the values instead of the range.
  const double largest = std::max(std::abs(low), std::abs(high));
  const bool wide = high - low > std::max(1e-9 * largest, kSmallestMagnitude);
  const double margin = wide ? 0.05 * (high - low) : std::max(0.5, 1e-3 * std::abs(high));
  low -= margin;
  high += margin;
}

std::vector<Tick> make_axis_ticks(const AxisRange& range, Scale scale) {
  if (scale == Scale::linear) return make_even_ticks(range, scale);
  const std::vector<Tick> powers = make_power_ticks(range, scale);
  if (powers.size() >= kMinTicks) return powers;
  const std::vector<Tick> multiples = make_multiple_ticks(range, scale);
  return multiples.size() >= kMinTicks ? multiples : make_even_ticks(range, scale);
}

}  // namespace tapeformer
