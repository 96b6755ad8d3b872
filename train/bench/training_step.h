// The training step of a model that benchmarks measure.
#pragma once

#include <memory>

#include "train/bench/model_choice.h"
#include "train/loop/step_graphs.h"
#include "train/optimizer.h"

namespace tapeformer {

// Training step of a model on a fixed batch, replayed as a CUDA graph if the config allows it.
class TrainingStep {
 public:
  // `choice` must outlive the object.
  TrainingStep(const ModelChoice& choice, Device device);

  void run();
  // Runs the step without a graph.
  void run_launches();
  const Module& model() const { return model_; }
  bool replays() const { return replays_; }

 private:
  StepOutputs launch();

  const ModelChoice& choice_;
  AutoregressiveModel model_;
  bool replays_;
  std::unique_ptr<Optimizer> optimizer_;
  Batch batch_;
  StepGraphs graphs_;
  int64_t number_ = 0;
};

}  // namespace tapeformer
