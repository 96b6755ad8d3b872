#include "train/loop/step_runner.h"

#include <cmath>

#include "autograd/tape.h"
#include "train/loop/divergence.h"

namespace tapeformer {

StepRunner::StepRunner(const Config& config, Device device, const RunState& state, Task& task,
                       Optimizer& optimizer, const Schedule& schedule)
    : config_(config),
      device_(device),
      state_(state),
      task_(task),
      optimizer_(optimizer),
      schedule_(schedule) {
  if (!device_.is_cpu() && config_.run.cuda_graphs)
    graphs_ = std::make_unique<StepGraphs>(device_, config_.train.accumulate);
}

void StepRunner::prepare_batches() {
  if (batches_prepared_) return;
  const int64_t micro_steps = config_.train.accumulate;
  task_.prepare_batches(state_.step * micro_steps, state_.total_steps * micro_steps);
  batches_prepared_ = true;
}

// Fetches the micro-batches of the step. Returns nothing if the step cannot be captured as a graph.
std::optional<StepLayout> StepRunner::fetch_batches(bool with_dropout) {
  const int64_t micro_steps = config_.train.accumulate;
  bool capturable = graphs_ != nullptr;
  StepLayout layout{.dropout = with_dropout, .batches = {}};
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const auto batch = task_.fetch(state_.step * micro_steps + micro, micro);
    capturable = capturable && batch;
    layout.batches.push_back(batch.value_or(BatchLayout{}));
  }
  return capturable ? std::optional(layout) : std::nullopt;
}

// Returns the weight of each micro-batch in the loss of the step, so that the gradient equals the
// gradient of one batch with all examples. Copies the weights to `device_weights_`, where a captured graph
// reads them.
std::vector<double> StepRunner::batch_weights() {
  const int64_t micro_steps = config_.train.accumulate;
  if (micro_steps == 1) return {1};
  std::vector<double> weights;
  double total = 0;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    weights.push_back(task_.loss_count(micro));
    total += weights.back();
  }
  for (double& weight : weights) weight = total > 0 ? weight / total : 0;
  if (!device_weights_.defined()) device_weights_ = Tensor::empty({micro_steps}, DType::float64, device_);
  device_weights_.copy_from(Tensor::from(weights, {micro_steps}));
  return weights;
}

// Throws DivergedError if the loss of a batch is not finite.
void StepRunner::require_finite(double loss, int64_t step, int64_t batch) const {
  if (!std::isfinite(loss)) check_loss(loss, step, task_.examples_of(batch), state_);
}

// Launches forward and backward of the fetched micro-batches and the update of the weights.
StepOutputs StepRunner::launch(bool with_dropout) {
  const int64_t micro_steps = config_.train.accumulate;
  StepOutputs outputs;
  for (int64_t micro = 0; micro < micro_steps; ++micro) {
    const int64_t number = state_.step * micro_steps + micro;
    const ForwardContext context{.training = true,
                                 .dropout_off = !with_dropout,
                                 .seed = static_cast<uint64_t>(config_.run.seed),
                                 .step = static_cast<uint64_t>(number)};
    const BatchLoss batch = task_.loss(micro, context);
    if (device_.is_cpu()) require_finite(batch.loss.item(), state_.step, number);
    if (device_weights_.defined())
      backward(batch.loss, device_weights_.view(batch.loss.shape(), {}, micro).to(batch.loss.dtype()));
    else
      backward(batch.loss);
    outputs.losses.push_back(detach(batch.loss));
    outputs.tokens += batch.tokens;
  }
  outputs.grad_norm = optimizer_.apply();
  return outputs;
}

StepResult StepRunner::run() {
  const int64_t dropout_steps = config_.train.dropout_steps;
  const bool with_dropout = dropout_steps == 0 || state_.step < dropout_steps;
  prepare_batches();
  const std::optional<StepLayout> layout = fetch_batches(with_dropout);
  std::vector<double> weights = batch_weights();
  StepResult result;
  result.lr = config_.optimizer.lr * schedule_.factor(state_.step);
  optimizer_.prepare(result.lr);
  const auto work = [&] { return launch(with_dropout); };
  const StepOutputs outputs = layout ? graphs_->run(*layout, state_.step, work) : work();
  result.grad_norm = outputs.grad_norm;
  result.tokens = outputs.tokens;
  PendingLosses pending{state_.step, std::move(weights), {}, Readback(outputs.grad_norm)};
  for (const Tensor& loss : outputs.losses) pending.losses.emplace_back(loss);
  pending_.push_back(std::move(pending));
  // The losses of the previous step are read after the launch of this step, so the device stays busy. If a
  // loss is not finite, at most one further step has changed the weights. No checkpoint is written before all
  // losses are read.
  read_losses(state_.step);
  return result;
}

void StepRunner::read_losses(int64_t end_step) {
  while (!pending_.empty() && pending_.front().step < end_step) {
    const PendingLosses pending = std::move(pending_.front());
    pending_.pop_front();
    const auto count = static_cast<int64_t>(pending.losses.size());
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double loss = pending.losses[static_cast<size_t>(i)].value();
      require_finite(loss, pending.step, pending.step * count + i);
      sum += pending.weights[static_cast<size_t>(i)] * loss;
    }
    check_grad_norm(pending.grad_norm.value(), pending.step, state_);
    last_loss_ = sum;
  }
}

}  // namespace tapeformer
