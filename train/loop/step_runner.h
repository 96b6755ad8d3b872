// Optimizer steps: forward and backward of the micro-batches, and the update of the weights.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/readback.h"
#include "train/loop/run_state.h"
#include "train/loop/step_graphs.h"
#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/tasks/task.h"

namespace tapeformer {

struct StepResult {
  double lr = 0;
  Tensor grad_norm;  // scalar on the device
  int64_t tokens = 0;
};

class StepRunner {
 public:
  // The arguments must outlive the runner.
  StepRunner(const Config& config, Device device, const RunState& state, Task& task, Optimizer& optimizer,
             const Schedule& schedule);

  // Runs step number `state.step`. On the CPU, throws DivergedError if its loss is not finite. On a device,
  // the losses are copied to the host asynchronously and checked after the launches of the next step.
  StepResult run();
  // Waits for the losses of the steps before `end_step`. Throws DivergedError if a loss or a gradient norm is
  // not finite.
  void read_losses(int64_t end_step);
  // Returns the loss of the last step whose losses were read.
  std::optional<double> last_loss() const { return last_loss_; }

  // Returns the captured graphs of steps; null on the CPU and with run.cuda_graphs = false.
  const StepGraphs* graphs() const { return graphs_.get(); }

 private:
  // Losses of a step that are being copied to the host.
  struct PendingLosses {
    int64_t step;
    std::vector<double> weights;  // weights of the micro-batches in the loss of the step
    std::vector<Readback> losses;
    Readback grad_norm;
  };

  void prepare_batches();
  std::optional<StepLayout> fetch_batches(bool with_dropout);
  std::vector<double> batch_weights();
  void require_finite(double loss, int64_t step, int64_t batch) const;
  StepOutputs launch(bool with_dropout);

  const Config& config_;
  Device device_;
  const RunState& state_;
  Task& task_;
  Optimizer& optimizer_;
  const Schedule& schedule_;
  std::unique_ptr<StepGraphs> graphs_;
  bool batches_prepared_ = false;
  Tensor device_weights_;  // PendingLosses::weights on the device; undefined if train.accumulate is 1
  std::deque<PendingLosses> pending_;
  std::optional<double> last_loss_;
};

}  // namespace tapeformer
