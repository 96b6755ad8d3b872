#include "autograd/reversible.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autograd/chunked.h"
#include "autograd/complete.h"
#include "autograd/recompute.h"

namespace tapeformer {
namespace {

// Returns x if x is contiguous and no other tensor shares the data of x. Otherwise returns a contiguous copy.
Tensor own(Tensor x) {
  const bool alone = x.use_count() == 1 && x.owns_storage_alone() && x.is_contiguous();
  return alone ? x : x.clone();
}

// Computes target += sign * branch(x). `target` and `x` must not share data.
void add_branch(const ReversibleBranch& branch, const Tensor& x, const Tensor& target, double sign) {
  for_each_chunk(x.size(0), branch.chunk_count, [&](int64_t first, int64_t last) {
    const Tensor part = branch.function(view_rows(x, first, last), first);
    view_rows(target, first, last).add_scaled(part, sign);
  });
}

// Records branch(x) on the tape and subtracts the result from `target`. Returns a recorded scalar instead of
// branch(x), so that the memory of branch(x) is freed. backward() of the returned scalar uses `g` as the
// gradient of branch(x).
Tensor run_and_subtract(const ReversibleBranch& branch, const Tensor& x, int64_t first, const Tensor& target,
                        const Tensor& g) {
  const RecordingScope record_again(true);
  const Tensor result = branch.function(x, first);
  target.add_scaled(detach(result), -1);
  return record("reversible", Tensor::empty({}, result.dtype(), result.device()), {&result},
                [g](const Tensor&) { return Gradients{g}; });
}

// Replays `branch` for the input x, and subtracts the result from `target`. Before the call, `target` is an
// output of the block; after the call, it is the corresponding input. Adds the gradient of x to `gx`. `g` is
// the gradient of branch(x).
void replay(const ReversibleBranch& branch, const Tensor& x, const Tensor& target, const Tensor& g,
            Tensor& gx) {
  // The code below changes `gx` in place. If another tensor shares the data of `gx`, own() copies `gx` first.
  // The gradient of a leaf that the previous branch uses can share the data of `gx`.
  gx = own(std::move(gx));
  for_each_chunk(x.size(0), branch.chunk_count, [&](int64_t first, int64_t last) {
    const Tensor leaf = view_rows(x, first, last);
    set_requires_grad(leaf);
    const Tensor end =
        run_and_subtract(branch, leaf, first, view_rows(target, first, last), view_rows(g, first, last));
    if (!requires_grad(end)) return;
    backward(end, detach(end));
    if (const Tensor added = gradient(leaf); added.defined()) view_rows(gx, first, last).add_scaled(added);
  });
}

// Returns a view of the first (which = 0) or second (which = 1) half of the last dimension.
Tensor slice_half(const Tensor& joined, int64_t which) {
  Shape shape = joined.shape();
  shape[-1] /= 2;
  return joined.view(shape, joined.strides(), which * shape[-1]);
}

void check_halves(const Tensor& x1, const Tensor& x2) {
  check(x1.rank() >= 2 && x1.shape() == x2.shape() && x1.dtype() == x2.dtype(), "reversible", "halves ",
        x1.shape(), " ", name_of(x1.dtype()), " and ", x2.shape(), " ", name_of(x2.dtype()),
        " must have equal shapes with at least two dimensions, and equal dtypes");
}

// Keeps each parameter only in the first block that uses the parameter. backward() replays the blocks in
// reverse order, so the gradient of a parameter is complete after the replay of the first block that uses it.
std::vector<ReversibleBlock> with_distinct_parameters(std::vector<ReversibleBlock> blocks) {
  std::unordered_set<const void*> seen;
  for (ReversibleBlock& block : blocks)
    std::erase_if(block.parameters, [&](const Tensor& leaf) { return !seen.insert(leaf.id()).second; });
  return blocks;
}

// Copies the two halves of the last dimension of a tensor, and releases the tensor.
ReversibleState split_halves(Tensor joined) {
  return {slice_half(joined, 0).clone(), slice_half(joined, 1).clone()};
}

// Returns the number of the first blocks that backward() need not replay: blocks without parameters that
// require a gradient, if no input of the stack requires a gradient.
size_t count_constant_blocks(const std::vector<ReversibleBlock>& blocks, bool inputs_need_gradients) {
  if (inputs_need_gradients) return 0;
  const auto is_trained = [](const ReversibleBlock& block) {
    return std::any_of(block.parameters.begin(), block.parameters.end(), requires_grad);
  };
  return static_cast<size_t>(std::find_if(blocks.begin(), blocks.end(), is_trained) - blocks.begin());
}

// Returns the gradients of the inputs of the block `begin`. `g` contains the gradients of the outputs.
// Overwrites the data of `state`, the outputs of the stack, with the inputs. Each parameter must be listed
// only in the first block that uses the parameter.
ReversibleState backward_through(const std::vector<ReversibleBlock>& blocks, ReversibleState state,
                                 ReversibleState g, size_t begin) {
  const auto end = blocks.rend() - static_cast<std::ptrdiff_t>(begin);
  for (auto block = blocks.rbegin(); block != end; ++block) {
    for (auto branch = block->branches.rbegin(); branch != block->branches.rend(); ++branch) {
      std::swap(state.first, state.second);
      std::swap(g.first, g.second);
      replay(*branch, state.second, state.first, g.first, g.second);
    }
    for (const Tensor& leaf : block->parameters) tape::report_gradient_complete(leaf);
  }
  return g;
}

// Moves the accumulated gradients of the sources to `gradients`, from `first` on.
void take_gradients(const std::vector<ReversibleSource>& sources, Gradients& gradients, size_t first) {
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!requires_grad(sources[i].leaf)) continue;
    gradients[first + i] = gradient(sources[i].leaf);
    set_gradient(sources[i].leaf, {});
  }
}

}  // namespace

ReversibleState run_reversible_forward(const std::vector<ReversibleBlock>& blocks,
                                       const ReversibleState& inputs) {
  check_halves(inputs.first, inputs.second);
  const NoGradScope no_grad;
  ReversibleState state{inputs.first.clone(), inputs.second.clone()};
  for (const ReversibleBlock& block : blocks)
    for (const ReversibleBranch& branch : block.branches) {
      add_branch(branch, state.second, state.first, 1);
      std::swap(state.first, state.second);
    }
  return state;
}

Tensor run_reversible(const std::vector<ReversibleBlock>& blocks, const Tensor& x1, const Tensor& x2,
                      const std::vector<ReversibleSource>& sources) {
  Tensor joined;
  {
    const ReversibleState state = run_reversible_forward(blocks, {x1, x2});
    Shape shape = x1.shape();
    shape[-1] *= 2;
    joined = Tensor::empty(shape, x1.dtype(), x1.device());
    slice_half(joined, 0).copy_from(state.first);
    slice_half(joined, 1).copy_from(state.second);
  }
  std::vector<Tensor> parameters;
  for (const ReversibleBlock& block : blocks)
    parameters.insert(parameters.end(), block.parameters.begin(), block.parameters.end());
  std::vector<Tensor> inputs = {x1, x2};
  for (const ReversibleSource& source : sources) inputs.push_back(source.input);
  inputs = make_replay_inputs(std::move(inputs), parameters);
  return record(
      "reversible", joined, inputs,
      [blocks = with_distinct_parameters(blocks), sources, joined = detach(joined), count = inputs.size()](
          Tensor g, NeededGradients needs) mutable {
        ReversibleState outputs = split_halves(needs.is_tape_retained() ? joined : std::exchange(joined, {}));
        ReversibleState gy = split_halves(std::exchange(g, {}));
        bool inputs_need_gradients = false;
        for (size_t i = 0; i < 2 + sources.size(); ++i) inputs_need_gradients |= needs[static_cast<int>(i)];
        const size_t begin = count_constant_blocks(blocks, inputs_need_gradients);
        const ReversibleState gx = backward_through(blocks, std::move(outputs), std::move(gy), begin);
        Gradients gradients(count);
        if (needs[0]) gradients[0] = gx.first;
        if (needs[1]) gradients[1] = gx.second;
        take_gradients(sources, gradients, 2);
        return gradients;
      });
}

}  // namespace tapeformer
