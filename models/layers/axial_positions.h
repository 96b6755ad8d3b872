// Axial position embeddings ("Reformer", Kitaev et al. 2020, and the authors' code). The positions of a
// sequence form a grid. Each axis of the grid has a learned table with one row per coordinate. The embedding
// of a position is the concatenation of one row of each table. For example, a grid of n1 x n2 positions with
// tables of d1 and d2 features has n1 * d1 + n2 * d2 parameters.
#pragma once

#include <vector>

#include "models/layers/module.h"
#include "models/layers/option_error.h"

namespace tapeformer {

// Sizes of the grid and of the tables: axis a has shape[a] coordinates and dims[a] features. Positions are
// in row-major order: the coordinate of the last axis varies fastest.
struct AxialShape {
  std::vector<int64_t> shape, dims;

  int64_t position_count() const;
  int64_t width() const;
};

// Returns the problems of an axial shape, for example that the sum of AxialShape::dims is not `width`. If
// `length` is positive, the shape must have at least `length` positions and no axis longer than 4 * length.
std::vector<OptionProblem> find_option_problems(const AxialShape& axial, int64_t width, int64_t length = 0);

// The learned tables of axial positions. The table of axis a is (shape[a], dims[a]) and is initialised from
// N(0, 1). The parameter name of a table is the number of its axis.
class AxialPositions final : public Module {
 public:
  // `max_length` is the maximum length of sequences. If `max_length` is 0 or exceeds the number of positions
  // of the grid, the maximum length is the number of positions.
  explicit AxialPositions(const AxialShape& axial, int64_t max_length = 0);
  // Returns the embeddings of positions 0 … length - 1, (length, width). Throws ShapeError if `length`
  // exceeds the maximum length.
  Tensor forward(int64_t length) const;

  std::vector<Tensor> tables;

 private:
  AxialShape axial_shape_;
  int64_t max_length_;
  // The coordinates of the positions, one (max_length,) int64 tensor per axis.
  std::vector<Tensor> coordinates_;
};

}  // namespace tapeformer
