// The training loop: one batch, one sweep of the tape, one optimizer step, until the steps are done, the time
// limit has passed or a signal asks to stop; in between progress, metrics, evaluations and checkpoints in the
// run directory.
//
// A Trainer owns everything of a run. Every random draw is a function of (seed, step), so the run directory's
// last checkpoint continues exactly as if the process had not stopped.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/readback.h"
#include "train/build.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_directory.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/progress.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/step_graphs.h"
#include "train/tasks/task.h"

namespace tapeformer {

struct TrainerOptions {
  std::filesystem::path run_dir;
  std::string data_dir;
  bool resume = false;          // continue from the last checkpoint of run_dir, if there is one
  bool quiet = false;           // no progress
  bool allow_commands = false;  // run the shell commands of wav.scp
};

struct TrainResult {
  int64_t step = 0;
  int64_t total_steps = 0;
  std::optional<TaskEvaluation> evaluation;  // the last one
  double best_loss = 0;                      // lowest criterion of an evaluation
  double seconds = 0;                        // of training, over all resumptions, without evaluations
  double seconds_per_epoch = 0;              // of the last whole epoch, where the task reports them
  int stop_signal = 0;                       // the signal that ended the run early, or 0
  bool time_is_up = false;
};

struct DryRun {
  int64_t parameters = 0, total_steps = 0, training_examples = 0, evaluation_examples = 0;
  int64_t memory_bytes = 0;  // peak of one step
  double loss = 0, seconds_per_step = 0;
  double seconds_in_all = 0;  // of training, up to the time limit
};

class Trainer {
 public:
  // Loads data, builds the model and, when resuming, the state of the last checkpoint. Throws ConfigError for
  // a run directory that is taken or that belongs to a contradicting config, DataError, CheckpointError.
  Trainer(Config config, TrainerOptions options);
  ~Trainer();

  // Trains until the last step, the time limit or a signal. Throws DivergedError if a loss, a gradient norm
  // or a weight is not finite; the last checkpoint is kept.
  TrainResult run();
  // Runs a few steps without writing files, and measures the last step.
  DryRun dry_run();

  const Module& model() const { return task_->model(); }
  const std::filesystem::path& run_dir() const { return options_.run_dir; }
  const StepGraphs* graphs() const { return graphs_.get(); }  // null where steps are not repeated

 private:
  struct Step {
    double lr = 0;
    Tensor grad_norm;  // brought from the device where it is reported
    int64_t tokens = 0;
  };
  // The losses of a step that the device has been asked for. The host looks at them when it has launched the
  // step after, so that neither waits for the other.
  struct UnreadLosses {
    int64_t step;
    std::vector<double> shares;  // weights of the batches in the loss of the step
    std::vector<Readback> of_batches;
    Readback grad_norm;
  };

  void start_new_run(const RunDirectory& directory);
  void resume(const RunDirectory& directory);
  void load_state(const Checkpoint& checkpoint);
  TrainingState state() const;
  Step train_step();
  StepOutputs launch_step(bool with_dropout);
  std::vector<double> shares_of_batches();
  void prepare_batches();
  void read_losses(int64_t before_step);
  void check_loss(double loss, int64_t step, int64_t number) const;
  void check_grad_norm(double norm, int64_t step) const;
  void check_weights(const NamedTensors& tensors) const;
  std::string kept_checkpoint_text() const;
  void report(const Step& step);
  void report_epoch();
  void write_metrics(const MetricRecord& record);
  bool finish_step(bool last, const StopSignals& signals);
  bool evaluate_now(const StopSignals& signals);
  void record_evaluation(bool best);
  void save(bool must_succeed);
  void warn(const std::string& text);
  bool due(int64_t every) const { return every > 0 && step_ % every == 0; }
  // Whether an epoch ended with the last step, and its number, counted from 1, is a multiple of `every`.
  bool epoch_due(int64_t every) const;
  bool evaluation_due() const {
    return due(config_.train.eval_every) || epoch_due(config_.train.eval_epochs);
  }

  Config config_;
  Device device_;
  TrainerOptions options_;
  std::unique_ptr<Task> task_;
  bool batches_prepared_ = false;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<StepGraphs> graphs_;  // null on the CPU and without run.cuda_graphs
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<Progress> progress_;

  int64_t step_ = 0, total_steps_ = 0, saved_step_ = -1, evaluated_step_ = -1;
  Tensor shares_;  // UnreadLosses::shares of the step on the device; undefined if accumulate is 1
  std::deque<UnreadLosses> unread_losses_;
  std::optional<double> last_loss_;  // of the newest step whose losses were read
  double best_loss_, seconds_ = 0;
  double epoch_seconds_ = 0, epoch_cpu_seconds_ = 0;  // of the epoch that is under way
  double seconds_per_epoch_ = 0;                      // of the last one
  std::optional<TaskEvaluation> evaluation_;
  std::string description_;  // Task::description()

  // Since the last report.
  int64_t interval_tokens_ = 0;
  double interval_seconds_ = 0;
};

}  // namespace tapeformer
