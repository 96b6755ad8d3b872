// Axial position embeddings (Kitaev et al. 2020, "Reformer"; the authors' code): a long sequence laid out as
// a grid, with one learned table for each axis. The embedding of a position is the tables' rows at its
// coordinates, side by side, so that n1 n2 positions need n1 d1 + n2 d2 numbers.
#pragma once

#include <vector>

#include "models/module.h"

namespace tapeformer {

// Axis a has shape[a] places and gives dims[a] features. Axis 0 is the slowest: rows, then columns.
struct AxialShape {
  std::vector<int64_t> shape, dims;

  int64_t positions() const;
  int64_t width() const;
};

// Throws ConfigError when the axes do not cover `length` positions, or the features do not add up to `width`.
void check_axial(const AxialShape& axial, int64_t length, int64_t width);

// Parameters "0", "1", …, (shape[a], dims[a]), drawn from N(0, 1).
class AxialPositions final : public Module {
 public:
  explicit AxialPositions(const AxialShape& axial);
  // The embeddings of positions 0 … length - 1, (length, width): any length up to the product of the shape.
  // Errors: ShapeError beyond it.
  Tensor forward(int64_t length) const;

  std::vector<Tensor> tables;

 private:
  AxialShape axial_;
};

}  // namespace tapeformer
