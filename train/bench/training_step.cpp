#include "train/bench/training_step.h"

namespace tapeformer {

TrainingStep::TrainingStep(const BenchmarkedModel& choice, Device device)
    : choice_(choice),
      model_(choice.model),
      uses_graph_(!device.is_cpu() && choice.run.cuda_graphs),
      batch_(make_random_batch(choice.model, choice.batch_size, choice.seed)),
      graphs_(device, 1) {
  model_.initialize(choice.seed);
  model_.move(device);
  optimizer_ =
      std::make_unique<Optimizer>(choice.optimizer, model_.parameters(), model_.undecayed_parameters());
  if (uses_graph_) batch_.tokens = batch_.tokens.to(device);
}

void TrainingStep::run() {
  if (!uses_graph_) return run_without_graph();
  optimizer_->prepare_step(choice_.optimizer.lr);
  graphs_.run({}, step_number_, [&] { return launch(); });
  ++step_number_;
}

void TrainingStep::run_without_graph() {
  optimizer_->prepare_step(choice_.optimizer.lr);
  launch();
  ++step_number_;
}

StepOutputs TrainingStep::launch() {
  const RoundedWeights::Scope rounded(optimizer_->round_weights());
  const Tensor loss = model_.compute_loss(
      batch_, {.training = true, .seed = choice_.seed, .step = static_cast<uint64_t>(step_number_)});
  backward(loss);
  return StepOutputs{
      .losses = {detach(loss)}, .loss_terms = {}, .grad_norm = optimizer_->update_parameters()};
}

}  // namespace tapeformer
