// Execution of training steps as CUDA graphs. Steps with equal StepLayout share a graph. The first of these
// steps runs without a graph. The second step is captured as a graph, which all later steps replay.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "train/tasks/step_batch.h"

namespace tapeformer {

namespace cuda {
class Graph;
}

// Properties of a step that determine its launches. Steps of equal layout can share a graph.
struct StepLayout {
  bool dropout = true;
  std::vector<BatchLayout> batches;  // one for each micro-batch
  auto operator<=>(const StepLayout&) const = default;
};

// Results of a step on the device. Each replay of a graph overwrites the tensors.
struct StepOutputs {
  std::vector<Tensor> losses;  // one for each micro-batch
  // For each micro-batch, the sum of the auxiliary losses of all layers. The tensor of a micro-batch is
  // undefined if the layers have no auxiliary losses.
  std::vector<Tensor> loss_terms;
  Tensor grad_norm;
  // Sum of BatchLoss::processed_unit_count over all micro-batches. Equal for all steps with the same layout.
  int64_t processed_unit_count = 0;
};

class StepGraphs {
 public:
  // `micro_batch_count` is the number of micro-batches in a training step. Each training step advances the
  // step counter of the random streams by this number.
  StepGraphs(Device device, int64_t micro_batch_count);
  ~StepGraphs();

  // Copies the tokens, the mask and the targets of a micro-batch to the device. Batches of equal layout and
  // equal index among the micro-batches of their steps use the same memory, which captured graphs read.
  void move_to_device(StepBatch& batch, int64_t micro_batch, const BatchLayout& layout);

  // Runs step number `step`: calls `launch_step`, or replays the graph of `layout`. `launch_step` must do the
  // same work in all steps with equal layouts. Only the step number and the values of the batch tensors can
  // differ between steps with equal layouts.
  StepOutputs run(const StepLayout& layout, int64_t step, const std::function<StepOutputs()>& launch_step);

  // Returns the number of captured graphs, including graphs that were discarded.
  int64_t captured_step_count() const { return captured_step_count_; }
  // Returns the number of steps that launched a graph.
  int64_t replayed_step_count() const { return replayed_step_count_; }

 private:
  struct Entry {
    bool has_run = false;  // whether a step with this layout has run
    int64_t captured_step = 0;
    StepOutputs outputs;  // results of the graph; each replay overwrites the tensors
    std::shared_ptr<cuda::Graph> graph;
  };
  void capture(Entry& entry, int64_t step, const std::function<StepOutputs()>& launch_step);

  Device device_;
  int64_t micro_batch_count_;
  std::map<StepLayout, Entry> entries_;
  std::map<std::pair<int64_t, BatchLayout>, Batch> inputs_;  // see move_to_device()
  int64_t captured_step_count_ = 0, replayed_step_count_ = 0;
};

}  // namespace tapeformer
