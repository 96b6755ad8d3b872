// Reversible residual stacks (Gomez et al. 2017, "The reversible residual network"; Kitaev et al. 2020,
// "Reformer", section 3): the inputs of every block are computed again from its outputs, so that a stack
// keeps its last outputs only, however deep it is.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// A residual branch. It must be a pure function of its input and of tensors that do not change before
// backward(): random numbers come from counter-based streams, so a replay draws them again, and choices that
// rounding could change are kept outside.
struct ReversibleBranch {
  // The branch of x (rows, …), which begins at row `first` of the whole; the result has x's shape.
  std::function<Tensor(const Tensor& x, int64_t first)> function;
  // Pieces that the rows are cut into, one after another, forward and backward. Beyond 1, rows of the result
  // must depend on the same rows of the input only.
  int64_t chunks = 1;
};

// y1 = x1 + f(x2), y2 = x2 + g(y1)
struct ReversibleBlock {
  ReversibleBranch f, g;
};

// The two halves that go through a stack, each (rows, …) of one shape and dtype.
struct ReversibleState {
  Tensor first, second;
};

// The blocks in turn, unrecorded.
ReversibleState reversible_forward(const std::vector<ReversibleBlock>& blocks, const ReversibleState& inputs);

// The blocks in turn on x1 and x2 (rows, …, dim), recorded as one node; result (rows, …, 2 dim), the first
// half before the second in every row. `parameters` are the leaves that the blocks use; their gradients are
// accumulated while backward() replays block after block from the end. Errors: ShapeError.
Tensor reversible(const std::vector<ReversibleBlock>& blocks, const Tensor& x1, const Tensor& x2,
                  const std::vector<Tensor>& parameters);

}  // namespace tapeformer
