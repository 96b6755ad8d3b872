#include "models/layers/axial_positions.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/index.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr double kMostPositions = 1e15;
constexpr int64_t kMostPlaces = 4;  // of an axis, times the length: more are a mistake

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

bool all_positive(const std::vector<int64_t>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number > 0; });
}

}  // namespace

int64_t AxialShape::positions() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t AxialShape::width() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{0});
}

void check_axial(const AxialShape& axial, int64_t length, int64_t width) {
  const auto& [shape, dims] = axial;
  if (shape.empty() || shape.size() != dims.size() || !all_positive(shape) || !all_positive(dims))
    throw ConfigError("model.axial_shape = " + list_text(shape) + " and model.axial_dims = " +
                      list_text(dims) + " must name a size and a number of features above 0 for each axis");
  if (axial.width() != width)
    throw ConfigError(concat_text("model.axial_dims = ", list_text(dims), " add up to ", axial.width(),
                                  "; they must add up to the width ", width, " (heads × head_dim)"));
  if (std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>()) > kMostPositions)
    throw ConfigError("model.axial_shape = " + list_text(shape) +
                      " holds more positions than can be counted");
  for (const int64_t places : shape)
    if (places > kMostPlaces * length)
      throw ConfigError(concat_text("model.axial_shape = ", list_text(shape), " has an axis of ", places,
                                    " places for sequences of ", length, "; make it smaller"));
  if (axial.positions() < length) {
    std::vector<int64_t> larger = shape;
    const int64_t others = axial.positions() / shape[0];
    larger[0] = (length + others - 1) / others;
    throw ConfigError(concat_text("model.axial_shape = ", list_text(shape), " holds ", axial.positions(),
                                  " positions, and sequences have ", length, "; enlarge it, for example to ",
                                  list_text(larger)));
  }
}

AxialPositions::AxialPositions(const AxialShape& axial, int64_t max_length)
    : tables(axial.shape.size()),
      axial_(axial),
      max_length_(std::min(axial.positions(), max_length > 0 ? max_length : axial.positions())),
      coordinates_(axial.shape.size()) {
  int64_t inner = axial.positions();  // product of the sizes of the remaining axes
  for (size_t a = 0; a < tables.size(); ++a) {
    const int64_t size = axial.shape[a];
    inner /= size;
    coordinates_[a] = Tensor::empty({max_length_}, DType::int64);
    for (int64_t p = 0; p < max_length_; ++p) coordinates_[a].data<int64_t>()[p] = p / inner % size;
    add_parameter(std::to_string(a), tables[a], {size, axial.dims[a]}, normal_init(1));
    add_buffer("coordinates." + std::to_string(a), coordinates_[a]);
  }
}

Tensor AxialPositions::forward(int64_t length) const {
  check(length <= max_length_, "axial positions", "length ", length, " is beyond the ", max_length_,
        " positions of shape ", list_text(axial_.shape));
  std::vector<Tensor> parts;
  for (size_t a = 0; a < tables.size(); ++a)
    parts.push_back(embedding(tables[a], slice(coordinates_[a], 0, 0, length)));
  return concat(parts, -1);
}

}  // namespace tapeformer
