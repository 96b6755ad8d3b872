// Axial position embeddings ("Reformer", Kitaev et al. 2020, and the authors' code). A sequence is laid out
// as a grid with one learned table per axis. The embedding of a position is the concatenation of the rows of
// the tables at its coordinates. A grid of n1 x n2 positions with d1 + d2 features needs n1 d1 + n2 d2
// parameters.
#pragma once

#include <vector>

#include "models/layers/module.h"
#include "models/layers/option_error.h"

namespace tapeformer {

// Sizes of the grid and of the tables: axis a has shape[a] coordinates and dims[a] features. Positions are
// in row-major order: the coordinate of the last axis varies fastest.
struct AxialShape {
  std::vector<int64_t> shape, dims;

  int64_t positions() const;
  int64_t width() const;
};

// Returns the problems of an axial shape: sizes that are not positive, and features that do not add up to
// `width`. If `length` > 0, a shape with fewer than `length` positions, or with an axis longer than 4 *
// `length`, is also a problem.
std::vector<OptionProblem> find_option_problems(const AxialShape& axial, int64_t width, int64_t length = 0);

// The learned tables of axial positions, one per axis. The table of axis a is (shape[a], dims[a]), and its
// values are drawn from N(0, 1). The parameters have the names "0", "1" and so on.
class AxialPositions final : public Module {
 public:
  // The maximum length of sequences is `max_length`. If `max_length` is 0 or exceeds the number of positions
  // of the grid, the maximum length is the number of positions.
  explicit AxialPositions(const AxialShape& axial, int64_t max_length = 0);
  // Returns the embeddings of positions 0 … length - 1, (length, width). Throws ArgumentError if `length`
  // exceeds `max_length`.
  Tensor forward(int64_t length) const;

  std::vector<Tensor> tables;

 private:
  AxialShape axial_;
  int64_t max_length_;
  // The coordinates of all positions, one (max_length,) int64 tensor per axis. The tensors are registered as
  // buffers, so that move() transfers them to the device of the tables.
  std::vector<Tensor> coordinates_;
};

}  // namespace tapeformer
