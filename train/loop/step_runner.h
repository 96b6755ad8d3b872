// Execution of optimizer steps. A step consists of the forward and backward passes of its micro-batches, and
// an update of the weights.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/readback.h"
#include "models/layers/loss_terms.h"
#include "train/distributed/gradient_reducer.h"
#include "train/loop/run_state.h"
#include "train/loop/step_graphs.h"
#include "train/loop/step_status.h"
#include "train/optimization/optimizer.h"
#include "train/optimization/schedule.h"
#include "train/tasks/task.h"

namespace tapeformer {

struct StepResult {
  double lr = 0;
  Tensor grad_norm;  // scalar on the device
};

class StepRunner {
 public:
  // The arguments must outlive the runner. In a run with several processes, each process computes its slices
  // of the batches, and the gradients are summed over the processes.
  StepRunner(const Config& config, Device device, const RunState& state, Task& task, Optimizer& optimizer,
             const Schedule& schedule, Communicator& processes);

  // Runs step number RunState::step, and then waits for the losses of the previous steps. On the CPU in a run
  // with one process, also checks the loss of this step. Throws DivergenceError if a checked loss, or the
  // gradient norm of a previous step, is not finite. `stop` is the stop request of this process;
  // agreed_stop_request() returns the stop request of all processes.
  StepResult run(const StopRequest& stop = {});
  // Waits for the losses and gradient norms of the steps before step number `end_step`. Throws
  // DivergenceError if a loss or a gradient norm is not finite.
  void wait_for_losses(int64_t end_step);
  // Returns the loss of the last step whose losses were read. If no losses were read, returns std::nullopt.
  std::optional<double> last_loss() const { return last_loss_; }
  // Returns the sum of the auxiliary losses of all layers in the step of last_loss(). If the layers have no
  // auxiliary losses, returns std::nullopt. last_loss() does not include the auxiliary losses.
  std::optional<double> last_loss_terms() const { return last_loss_terms_; }
  // Returns the number of predictions or frames in the steps whose losses were read since the last call.
  int64_t take_processed_unit_count() { return std::exchange(processed_unit_count_, 0); }
  // Returns the request to stop on which all processes agreed in the last step whose losses were read.
  StopRequest agreed_stop_request() const { return agreed_stop_request_; }

  // Returns the captured graphs of steps, or null if steps are not captured. Steps are captured on a CUDA
  // device if run.cuda_graphs is true. With several processes, Communicator::is_stream_ordered() must also
  // return true.
  const StepGraphs* graphs() const { return graphs_.get(); }

 private:
  // A launched step whose losses have not been read.
  struct PendingStep {
    int64_t step;
    std::vector<double> loss_weights;  // weights of the micro-batches
    std::vector<Readback> losses;
    std::vector<std::optional<Readback>> loss_terms;  // nullopt for a micro-batch without auxiliary losses
    Readback grad_norm;
    int64_t processed_unit_count;
    StopRequest stop_request;
    std::optional<StepStatus> status;  // status of all processes; nullopt if the status is not exchanged yet
  };

  using Batches = std::vector<StepBatch>;  // the micro-batches of a step

  Batches fetch_batches();
  // Returns the layout of a step that can be captured as a graph, and moves its batches to the device.
  std::optional<StepLayout> prepare_graph(Batches& batches, bool with_dropout);
  void compute_loss_weights(const Batches& batches);
  void complete_pending_step(const PendingStep& pending);
  void complete_step_of_all_processes(const PendingStep& pending, const std::vector<double>& losses,
                                      const std::vector<double>& terms);
  BatchLoss forward(const StepBatch& batch, bool with_dropout, LossTerms& terms);
  void run_backward(const Tensor& loss, int64_t micro_batch);
  StepOutputs launch(const Batches& batches, bool with_dropout);
  // Returns the status of this process in the current step, which the processes exchange.
  StepStatus make_status(const StepOutputs& outputs) const;

  const Config& config_;
  Device device_;
  const RunState& state_;
  Task& task_;
  Optimizer& optimizer_;
  const Schedule& schedule_;
  Communicator& communicator_;
  std::unique_ptr<GradientReducer> reducer_;  // null in a run with one process
  std::unique_ptr<StepGraphs> graphs_;
  std::vector<double> loss_weights_;  // PendingStep::loss_weights of the current step
  // Copy of loss_weights_ on the device. Undefined if there is one micro-batch per step and one process.
  Tensor device_loss_weights_;
  StopRequest stop_request_;  // request of this process in the current step
  // Status of the current step. If the device is the CPU and the run has several processes, launch() sets
  // `status_`, and run() moves `status_` to the PendingStep. Otherwise, `status_` is std::nullopt.
  std::optional<StepStatus> status_;
  std::deque<PendingStep> pending_steps_;
  std::optional<double> last_loss_, last_loss_terms_;
  int64_t processed_unit_count_ = 0;
  StopRequest agreed_stop_request_;
};

}  // namespace tapeformer
