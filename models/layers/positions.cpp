#include "models/layers/positions.h"

#include <cmath>
#include <vector>

namespace tapeformer {
namespace {

void write_sinusoids(double* row, int64_t dim, double position, double base) {
  for (int64_t i = 0; i < dim; ++i) {
    const double angle = position / std::pow(base, static_cast<double>(i / 2 * 2) / static_cast<double>(dim));
    row[i] = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
  }
}

}  // namespace

Tensor make_sinusoidal_position_features(int64_t length, int64_t dim) {
  const Tensor table = Tensor::empty({length, dim}, DType::float64);
  for (int64_t p = 0; p < length; ++p) write_sinusoids(p, dim, table.data<double>() + p * dim);
  return table;
}

void write_sinusoids(int64_t position, int64_t dim, double* row) {
  write_sinusoids(row, dim, static_cast<double>(position), 10000);
}

Tensor make_grid_position_features(const ImageLayout& layout, int64_t length, int64_t dim) {
  constexpr double kBase = 100;
  const int64_t axes = layout.channels > 1 ? 3 : 2;
  const Tensor table = Tensor::zeros({length, dim}, DType::float64);
  for (int64_t p = 0; p < length; ++p) {
    const int64_t next = p + 1, pixel = next / layout.channels;
    const int64_t coordinates[] = {pixel / layout.width, pixel % layout.width, next % layout.channels};
    for (int64_t axis = 0; axis < axes; ++axis) {
      const int64_t begin = dim * axis / axes, end = dim * (axis + 1) / axes;
      write_sinusoids(table.data<double>() + p * dim + begin, end - begin,
                      static_cast<double>(coordinates[axis]), kBase);
    }
  }
  return table;
}

}  // namespace tapeformer
