#include "train/loop/step_runner.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "core/base/errors.h"
#include "train/loop/divergence.h"

namespace tapeformer {

StepRunner::StepRunner(const Config& config, Device device, const RunState& state, Task& task,
                       Optimizer& optimizer, const Schedule& schedule, Communicator& processes)
    : config_(config),
      device_(device),
      state_(state),
      task_(task),
      optimizer_(optimizer),
      schedule_(schedule),
      communicator_(processes) {
  const bool several = communicator_.size() > 1;
  if (several)
    reducer_ = std::make_unique<GradientReducer>(
        communicator_, strip_names(task_.model().parameters()),
        ReducerOptions{.use_bfloat16 = config_.train.reduce_dtype == "bfloat16"});
  const bool captures = config_.run.cuda_graphs && (!several || communicator_.is_stream_ordered());
  if (!device_.is_cpu() && captures)
    graphs_ = std::make_unique<StepGraphs>(device_, config_.train.accumulate);
}

StepRunner::Batches StepRunner::fetch_batches() {
  const int64_t micro_steps = config_.train.accumulate, first = state_.step * micro_steps;
  Batches batches;
  for (int64_t i = 0; i < micro_steps; ++i) batches.push_back(task_.batches().next(first + i));
  return batches;
}

std::optional<StepLayout> StepRunner::prepare_graph(Batches& batches, bool with_dropout) {
  if (!graphs_) return std::nullopt;
  StepLayout layout{.dropout = with_dropout, .batches = {}};
  for (const StepBatch& batch : batches) {
    const auto one = task_.make_graph_layout(batch);
    if (!one) return std::nullopt;
    layout.batches.push_back(*one);
  }
  for (size_t i = 0; i < batches.size(); ++i)
    graphs_->move_to_device(batches[i], static_cast<int64_t>(i), layout.batches[i]);
  return layout;
}

// Computes the weight of each micro-batch in the loss of the step. The weights are chosen so that the sum of
// the gradients over all micro-batches and processes is the gradient of the loss of the whole batch. If a
// step has several micro-batches or processes, also copies the weights to the device, where a captured graph
// reads them.
void StepRunner::compute_loss_weights(const Batches& batches) {
  const int64_t micro_steps = config_.train.accumulate;
  loss_weights_.assign(1, 1);
  if (micro_steps == 1 && !reducer_) return;
  loss_weights_.clear();
  double total = 0;
  for (const StepBatch& batch : batches) {
    loss_weights_.push_back(batch.slice.loss_divisor);
    total += batch.slice.batch_loss_divisor;
  }
  for (double& weight : loss_weights_) weight = total > 0 ? weight / total : 0;
  if (!device_loss_weights_.defined())
    device_loss_weights_ = Tensor::empty({micro_steps}, DType::float64, device_);
  device_loss_weights_.copy_from(Tensor::from_vector(loss_weights_, {micro_steps}));
}

// Launches the forward pass of a micro-batch. If the slice of this process is empty, the returned loss is
// undefined. Layers add auxiliary losses to `terms`.
BatchLoss StepRunner::forward(const StepBatch& batch, bool with_dropout, LossTerms& terms) {
  if (batch.slice.example_count == 0) return {};
  const BatchLoss result = task_.compute_loss(batch, {.training = true,
                                                      .disable_dropout = !with_dropout,
                                                      .seed = static_cast<uint64_t>(config_.run.seed),
                                                      .step = static_cast<uint64_t>(batch.number),
                                                      .first_example = batch.slice.first_example,
                                                      .loss_terms = &terms});
  // On the CPU in a run with one process, the loss is checked before the backward pass. On other devices, and
  // in runs with several processes, complete_pending_step() checks the loss.
  if (device_.is_cpu() && !reducer_ && !std::isfinite(result.loss.item()))
    check_finite_loss(result.loss.item(), state_.step, task_.batches().describe_examples(batch.number),
                      state_);
  return result;
}

// Launches the backward pass of a micro-batch. In the last micro-batch, the reduction of each gradient over
// the processes starts when the gradient is complete.
void StepRunner::run_backward(const Tensor& loss, int64_t micro_batch) {
  BackwardOptions options;
  if (reducer_ && micro_batch + 1 == config_.train.accumulate)
    options.on_complete = [this](const Tensor& leaf) { reducer_->mark_complete(leaf); };
  const Tensor weight = device_loss_weights_.defined()
                            ? device_loss_weights_.view(loss.shape(), {}, micro_batch).to(loss.dtype())
                            : Tensor{};
  backward(loss, weight, options);
}

StepOutputs StepRunner::launch(const Batches& batches, bool with_dropout) {
  const int64_t micro_steps = config_.train.accumulate;
  StepOutputs outputs;
  const RoundedWeights::Scope rounded(optimizer_.round_weights());
  for (int64_t micro_batch = 0; micro_batch < micro_steps; ++micro_batch) {
    LossTerms terms;
    const BatchLoss batch = forward(batches[static_cast<size_t>(micro_batch)], with_dropout, terms);
    const bool empty = !batch.loss.defined(), has_terms = terms.sum().defined();
    outputs.losses.push_back(empty ? Tensor::zeros({}, DType::float32, device_) : detach(batch.loss));
    outputs.loss_terms.push_back(has_terms ? detach(terms.sum()) : Tensor{});
    outputs.processed_unit_count += batch.processed_unit_count;
    if (reducer_ && micro_batch + 1 == micro_steps) {
      reducer_->begin_step();
      // On the CPU, the losses are available before the last backward pass, so the status is reduced at the
      // same time as the gradients.
      if (device_.is_cpu())
        communicator_.start_all_reduce(status_.emplace(make_status(outputs)).status_matrix());
    }
    if (!empty) run_backward(has_terms ? add(batch.loss, terms.sum()) : batch.loss, micro_batch);
  }
  if (reducer_) reducer_->finish_step(task_.model().statistics());
  outputs.grad_norm = optimizer_.update_parameters();
  task_.model().update_state();
  return outputs;
}

StepStatus StepRunner::make_status(const StepOutputs& outputs) const {
  std::vector<double> losses, terms;
  for (const Tensor& loss : outputs.losses) losses.push_back(loss.item());
  for (const Tensor& term : outputs.loss_terms) terms.push_back(term.defined() ? term.item() : 0);
  return {communicator_, losses, terms, loss_weights_, outputs.processed_unit_count, stop_request_};
}

StepResult StepRunner::run(const StopRequest& stop) {
  const int64_t dropout_steps = config_.train.dropout_steps;
  const bool with_dropout = dropout_steps == 0 || state_.step < dropout_steps;
  stop_request_ = stop;
  Batches batches = fetch_batches();
  const std::optional<StepLayout> layout = prepare_graph(batches, with_dropout);
  compute_loss_weights(batches);
  StepResult result;
  result.lr = config_.optimizer.lr * schedule_.factor(state_.step);
  optimizer_.prepare_step(result.lr);
  const auto work = [&] { return launch(batches, with_dropout); };
  const StepOutputs outputs = layout ? graphs_->run(*layout, state_.step, work) : work();
  result.grad_norm = outputs.grad_norm;
  PendingStep pending{state_.step,
                      loss_weights_,
                      {},
                      {},
                      Readback(outputs.grad_norm),
                      outputs.processed_unit_count,
                      stop_request_,
                      std::exchange(status_, std::nullopt)};
  for (const Tensor& loss : outputs.losses) pending.losses.emplace_back(loss);
  for (const Tensor& term : outputs.loss_terms)
    pending.loss_terms.push_back(term.defined() ? std::optional<Readback>(term) : std::nullopt);
  pending_steps_.push_back(std::move(pending));
  // The losses of the previous step are read after the launch of this step, so that the device stays busy.
  // Trainer::save_checkpoint() waits for the losses of all steps before it writes a checkpoint.
  wait_for_losses(state_.step);
  return result;
}

void StepRunner::wait_for_losses(int64_t end_step) {
  while (!pending_steps_.empty() && pending_steps_.front().step < end_step) {
    const PendingStep pending = std::move(pending_steps_.front());
    pending_steps_.pop_front();
    complete_pending_step(pending);
  }
}

void StepRunner::complete_pending_step(const PendingStep& pending) {
  std::vector<double> losses, terms;
  for (const Readback& loss : pending.losses) losses.push_back(loss.value());
  for (const auto& term : pending.loss_terms) terms.push_back(term ? term->value() : 0);
  const bool has_terms = std::any_of(pending.loss_terms.begin(), pending.loss_terms.end(),
                                     [](const auto& term) { return term.has_value(); });
  if (reducer_) {
    complete_step_of_all_processes(pending, losses, terms);
  } else {
    double loss = 0, sum_of_terms = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
      loss += pending.loss_weights[i] * losses[i];
      sum_of_terms += pending.loss_weights[i] * terms[i];
      if (std::isfinite(losses[i])) continue;
      const int64_t number = pending.step * config_.train.accumulate + static_cast<int64_t>(i);
      check_finite_loss(losses[i], pending.step, task_.batches().describe_examples(number), state_);
    }
    last_loss_ = loss;
    last_loss_terms_ = sum_of_terms;
    processed_unit_count_ += pending.processed_unit_count;
    agreed_stop_request_ = pending.stop_request;
  }
  check_finite_grad_norm(pending.grad_norm.value(), pending.step, state_);
  if (!has_terms) last_loss_terms_.reset();
}

void StepRunner::complete_step_of_all_processes(const PendingStep& pending, const std::vector<double>& losses,
                                                const std::vector<double>& terms) {
  std::optional<StepStatus> status = pending.status;
  if (!status) {
    status.emplace(communicator_, losses, terms, pending.loss_weights, pending.processed_unit_count,
                   pending.stop_request);
    communicator_.all_reduce(status->status_matrix());
  }
  if (const auto bad = status->find_non_finite_loss()) {
    const int64_t number = pending.step * config_.train.accumulate + bad->micro_batch;
    check_finite_loss(bad->loss, pending.step,
                      concat_text(task_.batches().describe_examples(number), " (process ", bad->rank, ")"),
                      state_);
  }
  last_loss_ = status->loss();
  last_loss_terms_ = status->loss_terms();
  processed_unit_count_ += status->processed_unit_count();
  agreed_stop_request_ = status->get_stop_request();
}

}  // namespace tapeformer
