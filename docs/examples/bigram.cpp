// The command line of Tapeformer with one more type of models, "bigram": a table with the logits of the next
// token for each token. docs/extending.md explains this file.
//
// Usage: bigram train bigram.toml
#include <tapeformer/models/model_kind.h>
#include <tapeformer/ops/softmax.h>
#include <tapeformer/ops/view.h>
#include <tapeformer/tapeformer.h>
#include <tapeformer/train/build.h>
#include <tapeformer/train/cli/run.h>
#include <tapeformer/train/tasks/dataset_batches.h>
#include <tapeformer/train/tasks/registry/make_task.h>

#include <algorithm>
#include <memory>
#include <numeric>

using namespace tapeformer;

class Bigram : public Module {
 public:
  Bigram(int64_t tokens, double deviation) : logits(tokens, tokens, deviation) {
    add_child("logits", logits);
  }

  // Returns the mean loss of the tokens after the first one in nats.
  Tensor compute_loss(const Batch& batch) const {
    const Tensor& tokens = batch.tokens;
    const Tensor inputs = slice(tokens, 1, 0, tokens.size(1) - 1),
                 targets = slice(tokens, 1, 1, tokens.size(1));
    return cross_entropy(reshape(logits.forward(inputs), {inputs.numel(), logits.weight.size(1)}),
                         reshape(targets, {inputs.numel()}));
  }

  Embedding logits;
};

class BigramTask : public Task {
 public:
  BigramTask(const Config& config, const TaskEnvironment& environment)
      : Task(config), environment_(environment) {
    batches_ = std::make_unique<DatasetBatches>(
        config, open_training_set(config, environment), environment.processes,
        [](const Batch& batch) { return static_cast<double>(batch.inputs().numel()); });
    make_model();
  }
  BigramTask(const Config& config, const TaskEnvironment& environment, const TrainingState& /*state*/,
             const std::string& /*state_path*/)
      : Task(config), environment_(environment) {
    make_model();
  }

  std::string subject() const override { return "symbols"; }
  Module& model() const override { return *model_; }
  BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& /*context*/) override {
    const Batch& examples = batch.examples;
    return {model_->compute_loss(examples), examples.inputs().numel()};
  }
  std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const override {
    const auto data = open_evaluation_set(config(), environment_, nullptr, options.split, options.limit);
    return std::make_unique<DatasetEvaluator>(data, [this](const Dataset& set, const StopCheck& /*stop*/) {
      const NoGradScope no_grad;
      std::vector<int64_t> indices(static_cast<size_t>(set.size()));
      std::iota(indices.begin(), indices.end(), 0);
      const double nats = model_->compute_loss(set.batch(indices)).item();
      return TaskEvaluation{.selection_metric = nats,
                            .metrics = {{"loss_nats", nats}},
                            .results = {{"nats_per_token", nats}},
                            .summary = concat_text("nats_per_token ", nats)};
    });
  }

 private:
  void make_model() {
    model_ = build_model<Bigram>(config(), environment_.device, get_dataset_info(config()).vocabulary,
                                 config().model.get<double>("deviation"));
  }

  TaskEnvironment environment_;
  std::unique_ptr<Bigram> model_;
};

int main(int argc, char** argv) {
  register_model_kind({.name = "bigram",
                       .help = "logits of the next token for each token",
                       .options = {{.name = "deviation",
                                    .default_value = 1.0,
                                    .help = "standard deviation of the initial logits",
                                    .min = 0,
                                    .max = 100}},
                       .data_of = "sequence"});
  register_task_type(make_task_type<BigramTask>({"bigram"}));
  return cli::run(argc, argv);
}
