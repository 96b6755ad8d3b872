// Reversible residual stacks (Gomez et al. 2017, "The reversible residual network"; Kitaev et al. 2020,
// "Reformer", section 3): backward() recomputes the inputs of each block from the outputs of the block. A
// stack of any depth therefore keeps only the outputs of the last block.
#pragma once

#include <functional>
#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// A residual branch. `function` must depend only on its arguments and on tensors that do not change before
// backward(). Counter-based random streams give the same numbers in a replay. Rounding errors can change
// discrete decisions, such as the choice of LSH buckets, so these decisions must be made outside of the
// branch.
struct ReversibleBranch {
  // Computes the branch for x (rows, …), a chunk of consecutive rows. `first` is the index of the first row
  // of x in the whole input. The result has the shape of x.
  std::function<Tensor(const Tensor& x, int64_t first)> function;
  // Number of chunks into which the rows are split, in the forward and the backward pass. If there are
  // several chunks, a row of the result may depend only on the same row of the input.
  int64_t chunk_count = 1;
};

// A block of branches. Each branch computes x1 = x1 + branch(x2), and then x1 and x2 swap. With two branches
// f and g, the block computes y1 = x1 + f(x2) and y2 = x2 + g(y1).
struct ReversibleBlock {
  std::vector<ReversibleBranch> branches;
  std::vector<Tensor> parameters;  // all leaves that the branches use
};

// The two halves of the state of a stack, each (rows, …) with the same shape and dtype.
struct ReversibleState {
  Tensor first, second;
};

// A tensor that branches read besides the halves, such as the encoded source of a translation. Branches must
// use `leaf`, which shares the data of `input`. backward() of run_reversible() adds up the gradients of all
// branches and passes the sum to `input`.
struct ReversibleSource {
  explicit ReversibleSource(const Tensor& x) : input(x), leaf(detach(x)) {
    if (requires_grad(x)) set_requires_grad(leaf);
  }
  Tensor input, leaf;
};

// Runs the blocks in order without recording them on a tape, and returns the outputs. Throws ShapeError if
// the two halves of `inputs` differ in shape or dtype, or if a half has fewer than two dimensions.
ReversibleState run_reversible_forward(const std::vector<ReversibleBlock>& blocks,
                                       const ReversibleState& inputs);

// Runs the blocks in order on x1 and x2 (rows, …, dim), and records the call as one node. Returns the two
// outputs, concatenated along the last dimension: (rows, …, 2 dim). Throws ShapeError under the same
// conditions as run_reversible_forward().
//
// backward() replays the blocks in reverse order and accumulates the gradients of their parameters and of
// `sources`. After the replay of a block, backward() calls tape::report_gradient_complete() for the
// parameters of the block.
Tensor run_reversible(const std::vector<ReversibleBlock>& blocks, const Tensor& x1, const Tensor& x2,
                      const std::vector<ReversibleSource>& sources = {});

}  // namespace tapeformer
