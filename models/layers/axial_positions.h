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
  // `max_length` limits the length of sequences. 0: the product of the shape.
  explicit AxialPositions(const AxialShape& axial, int64_t max_length = 0);
  // Returns the embeddings of positions 0 … length - 1, (length, width). Throws ShapeError if `length`
  // exceeds `max_length`.
  Tensor forward(int64_t length) const;

  std::vector<Tensor> tables;

 private:
  AxialShape axial_;
  int64_t max_length_;
  // Coordinates of all positions, (max_length,) int64 per axis. They are buffers, so that captured graphs
  // read them on the device.
  std::vector<Tensor> coordinates_;
};

}  // namespace tapeformer
