#include "autograd/recompute.h"

#include <algorithm>
#include <iterator>

namespace tapeformer {

std::vector<Tensor> make_replay_inputs(std::vector<Tensor> inputs, const std::vector<Tensor>& parameters) {
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(inputs), requires_grad);
  return inputs;
}

Tensor recompute(const Segment& segment, const std::vector<Tensor>& inputs,
                 const std::vector<Tensor>& parameters) {
  std::vector<Tensor> detached;
  for (const Tensor& input : inputs) detached.push_back(detach(input));
  Tensor result;
  {
    const NoGradScope no_grad;
    result = detach(segment(detached));
  }
  const std::vector<Tensor> sources = make_replay_inputs(inputs, parameters);
  return record("recompute", result, sources,
                [segment, detached, count = sources.size()](const Tensor& g, NeededGradients needs) {
                  std::vector<Tensor> leaves;
                  for (size_t i = 0; i < detached.size(); ++i) {
                    leaves.push_back(detach(detached[i]));
                    if (needs[static_cast<int>(i)]) set_requires_grad(leaves.back());
                  }
                  Tensor replayed;
                  {
                    const RecordingScope record_again(true);
                    replayed = segment(leaves);
                  }
                  if (requires_grad(replayed)) backward(replayed, g);
                  Gradients gradients(count);
                  for (size_t i = 0; i < leaves.size(); ++i) gradients[i] = gradient(leaves[i]);
                  return gradients;
                });
}

}  // namespace tapeformer
