#include "models/layers/axial_positions.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/index.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxAxes = 3;
constexpr double kMaxPositions = 1e15;     // maximum product of the axis sizes; prevents integer overflow
constexpr int64_t kMaxAxisOverLength = 4;  // maximum ratio of an axis size to the sequence length

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

bool are_all_positive(const std::vector<int64_t>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number > 0; });
}

// If the grid is too large or too small for sequences of `length` tokens, appends this problem to `problems`.
// The elements of `shape` must be positive.
void check_coverage(const std::vector<int64_t>& shape, int64_t positions, int64_t length,
                    std::vector<OptionProblem>& problems) {
  const int64_t largest = *std::max_element(shape.begin(), shape.end());
  if (largest > kMaxAxisOverLength * length)
    problems.push_back({"axial_shape", concat_text("expected sizes of at most ", kMaxAxisOverLength,
                                                   " times the length of the sequences, ", length, ", got ",
                                                   list_text(shape))});
  if (positions >= length) return;
  std::vector<int64_t> larger = shape;
  const int64_t others = positions / shape[0];
  larger[0] = (length + others - 1) / others;
  problems.push_back(
      {"axial_shape",
       concat_text("expected at least ", length, " positions, the length of the sequences, got ", positions,
                   " in ", list_text(shape), "; for example, ", list_text(larger), " is large enough")});
}

}  // namespace

int64_t AxialShape::position_count() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t AxialShape::width() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{0});
}

std::vector<OptionProblem> find_option_problems(const AxialShape& axial, int64_t width, int64_t length) {
  const auto& [shape, dims] = axial;
  std::vector<OptionProblem> problems;
  const auto require = [&](bool condition, const char* option, const std::string& problem) {
    if (!condition) problems.push_back({option, problem});
  };
  const bool is_shape = !shape.empty() && shape.size() <= kMaxAxes && are_all_positive(shape);
  require(is_shape, "axial_shape",
          concat_text("axial positions need 1 to ", kMaxAxes, " sizes above 0, for example [64, 64], got ",
                      list_text(shape)));
  require(
      dims.size() == shape.size() && are_all_positive(dims), "axial_dims",
      concat_text("expected a number above 0 for each of ", shape.size(), " axes, got ", list_text(dims)));
  require(
      axial.width() == width, "axial_dims",
      concat_text("expected numbers that add up to the width, ", width, ", got a sum of ", axial.width()));
  if (!is_shape) return problems;
  const double positions = std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  require(positions <= kMaxPositions, "axial_shape",
          "expected at most 1e15 positions, got " + list_text(shape));
  if (length > 0 && positions <= kMaxPositions)
    check_coverage(shape, axial.position_count(), length, problems);
  return problems;
}

AxialPositions::AxialPositions(const AxialShape& axial, int64_t max_length)
    : tables(axial.shape.size()),
      axial_shape_(axial),
      max_length_(std::min(axial.position_count(), max_length > 0 ? max_length : axial.position_count())),
      coordinates_(axial.shape.size()) {
  // Each iteration divides `inner` by the size of axis a. `inner` is then the product of the sizes of the
  // later axes, which is the row-major stride of axis a.
  int64_t inner = axial.position_count();
  for (size_t a = 0; a < tables.size(); ++a) {
    const int64_t size = axial.shape[a];
    inner /= size;
    coordinates_[a] = Tensor::empty({max_length_}, DType::int64);
    for (int64_t p = 0; p < max_length_; ++p) coordinates_[a].data<int64_t>()[p] = p / inner % size;
    add_parameter(std::to_string(a), tables[a], {size, axial.dims[a]}, make_normal_initializer(1));
    add_buffer("coordinates." + std::to_string(a), coordinates_[a]);
  }
}

Tensor AxialPositions::forward(int64_t length) const {
  check(length <= max_length_, "axial positions", "length ", length, " is beyond the ", max_length_,
        " positions of shape ", list_text(axial_shape_.shape));
  std::vector<Tensor> parts;
  for (size_t a = 0; a < tables.size(); ++a)
    parts.push_back(embedding(tables[a], slice(coordinates_[a], 0, 0, length)));
  return concat(parts, -1);
}

}  // namespace tapeformer
