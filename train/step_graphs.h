// Steps of training on a device as graphs: the launches of a step are recorded when it comes for the second
// time and repeated from then on. Steps with batches of other shapes make other launches and have graphs of
// their own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

namespace cuda {
class Graph;
}

// What a step leaves on the device; of a repeated one it lies where the next one writes.
struct StepOutputs {
  std::vector<Tensor> losses;  // of the batches that are accumulated
  Tensor grad_norm;
  int64_t tokens = 0;  // of the batches; a layout has one number
};

class StepGraphs {
 public:
  // `draws`: what the step of the random streams grows by from one training step to the next.
  StepGraphs(Device device, int64_t draws);
  ~StepGraphs();

  // Does step number `step`. `layout` names what decides on the launches: steps of one layout differ in the
  // contents of the same tensors, in their number and in nothing else. `work` launches the step; what it
  // needs to know must be the same whenever the layout is.
  StepOutputs run(const std::string& layout, int64_t step, const std::function<StepOutputs()>& work);

  // How often a step was recorded, and repeated from a recording.
  int64_t recorded() const { return recorded_; }
  int64_t repeated() const { return repeated_; }

 private:
  struct Kept {
    bool seen = false;    // so that all that is made once has been made
    int64_t first = 0;    // the step that was recorded
    StepOutputs outputs;  // kept, because every launch writes there
    std::shared_ptr<cuda::Graph> graph;
  };
  void record(Kept& kept, int64_t step, const std::function<StepOutputs()>& work);

  Device device_;
  int64_t draws_;
  std::map<std::string, Kept> kept_;
  int64_t recorded_ = 0, repeated_ = 0;
};

}  // namespace tapeformer
