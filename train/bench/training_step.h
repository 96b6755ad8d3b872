// The training step that benchmarks measure.
#pragma once

#include <memory>

#include "train/bench/model_choice.h"
#include "train/loop/step_graphs.h"
#include "train/optimization/optimizer.h"

namespace tapeformer {

// A training step of a model on a fixed batch. On a CUDA device with run.cuda_graphs = true, the step is
// captured as a CUDA graph and replayed.
class TrainingStep {
 public:
  // `choice` must outlive the TrainingStep.
  TrainingStep(const BenchmarkedModel& choice, Device device);

  void run();
  // Runs the step without a CUDA graph, as separate launches.
  void run_without_graph();
  const Module& model() const { return model_; }
  bool uses_graph() const { return uses_graph_; }

 private:
  StepOutputs launch();

  const BenchmarkedModel& choice_;
  AutoregressiveModel model_;
  bool uses_graph_;
  std::unique_ptr<Optimizer> optimizer_;
  Batch batch_;
  StepGraphs graphs_;
  int64_t step_number_ = 0;
};

}  // namespace tapeformer
