// The training loop. The trainer runs optimizer steps until the last step, the time limit or a signal, and
// writes metrics, evaluations and checkpoints to the run directory.
//
// Every random number is a function of the seed and the step. A run that is resumed from its last checkpoint
// therefore gives the same weights as an uninterrupted run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "train/build.h"
#include "train/checkpoint/run_directory.h"
#include "train/distributed/processes.h"
#include "train/loop/checkpoint_writer.h"
#include "train/loop/epoch_clock.h"
#include "train/loop/run_log.h"
#include "train/loop/run_state.h"
#include "train/loop/step_runner.h"
#include "train/optimization/optimizer.h"
#include "train/optimization/schedule.h"
#include "train/signals.h"
#include "train/tasks/task.h"

namespace tapeformer {

struct TrainerOptions {
  std::filesystem::path run_dir;
  std::string data_dir;
  bool resume = false;          // continues from the last checkpoint of run_dir, if there is one
  bool quiet = false;           // disables the printing of progress
  bool allow_commands = false;  // runs the shell commands in wav.scp of Kaldi directories
  ProcessGroup processes = {};  // the processes that train together
  // Seconds after which a message says that an evaluation is still running.
  double evaluation_message_delay_seconds = 10;
  // Called on process 0 with each record that the run adds to metrics.jsonl. If the function throws, run()
  // ends with the exception.
  std::function<void(const MetricRecord&)> on_record = {};
};

struct TrainResult {
  int64_t step = 0;
  int64_t total_steps = 0;
  std::optional<TaskEvaluation> evaluation;  // result of the last evaluation
  double best_loss = 0;                      // lowest TaskEvaluation::selection_metric of all evaluations
  double training_seconds = 0;               // total time of all steps, including steps before a resume
  double last_epoch_seconds = 0;             // time of the last complete epoch, if the task reports epochs
  int stop_signal = 0;                       // signal that stopped the run, or 0
  bool is_time_up = false;                   // whether the time limit stopped the run
};

struct DryRunResult {
  int64_t parameter_count = 0, total_steps = 0;
  int64_t training_example_count = 0, evaluation_example_count = 0;
  int64_t memory_bytes = 0;         // peak memory of a step
  std::optional<double> loss = {};  // loss of the last step
  double seconds_per_step = 0;
  double estimated_seconds = 0;  // estimated training time, at most the time limit
};

class Trainer {
 public:
  // Loads the data and builds the model. All processes of a run must create a trainer and call the same
  // functions of the trainer. Only process 0 writes to the run directory.
  //
  // Throws ConfigError if the config is invalid, or if the configs, the program versions or the data of the
  // processes differ. Throws DataError if the data cannot be loaded, DeviceError if the device cannot be
  // used, and CheckpointError if the checkpoint of model.init is damaged.
  Trainer(Config config, TrainerOptions options);
  ~Trainer();

  // Trains until the last step is complete, the time limit is reached, or the process receives a stop
  // signal (train/signals.h). If run() throws an exception, the saved checkpoints stay intact. Exceptions:
  // - RunDirectoryError: The run directory cannot be used, or the config in the run directory does not allow
  //   a resume.
  // - ConfigError: The metadata of the task differs from the metadata in the checkpoint.
  // - CheckpointError: The checkpoint is damaged, or the last checkpoint cannot be saved.
  // - DivergenceError: A loss, a gradient norm, a weight or an optimizer state is not finite.
  // - std::runtime_error: The weights of the processes differ.
  // If an error occurs only on process 0, the other processes throw FirstProcessError.
  TrainResult run();
  // Runs a few training steps and measures the time of the last step. Writes no files.
  DryRunResult dry_run();

  const Module& model() const { return task_->model(); }
  const std::filesystem::path& run_dir() const { return options_.run_dir; }
  const StepGraphs* graphs() const { return step_runner_->graphs(); }

 private:
  // Starts a new run or loads the last checkpoint, and opens the log. Returns the state of the checkpoint as
  // JSON, or "" for a new run.
  std::string open_run(const RunDirectory& directory);
  // On process 0, sets `directory` and calls open_run(). Then copies the weights, the optimizer state and, if
  // the run is resumed, the TrainingState from process 0 to the other processes. If process 0 throws an
  // exception, all processes throw an exception.
  void open_run_on_all_processes(std::optional<RunDirectory>& directory);
  void restore(const TrainingState& state);
  void load_teacher();
  TrainingState make_state() const;
  void train_step(const StopSignalScope& signals);
  void report_step(const StepResult& step);
  void report_epoch();
  void write_record(const MetricRecord& record);
  // Saves a checkpoint if one is due after the current step, and evaluates if an evaluation is due. The
  // checkpoint comes first, so that a signal or a crash during the evaluation loses no step. Returns false if
  // a signal interrupted the evaluation.
  bool save_and_evaluate_if_due(bool is_last_step, const StopSignalScope& signals);
  bool evaluate(const StopSignalScope& signals);
  void save_checkpoint(bool must_succeed);
  // Throws std::runtime_error if the weights of the processes differ.
  void check_replicas();
  // Returns the request to stop after the current step. All processes get the same request.
  StopRequest make_stop_request(const StopSignalScope& signals) const;
  CheckpointWriter::WarningFunction make_warning_function();

  bool is_due(int64_t every) const { return every > 0 && state_.step % every == 0; }
  // Returns whether the latest step completed an epoch whose number, counted from 1, is a multiple of
  // `every`. If `every` is 0, returns false.
  bool is_epoch_due(int64_t every) const;
  bool is_evaluation_due() const {
    return is_due(config_.train.eval_every) || is_epoch_due(config_.train.eval_epochs);
  }
  // Returns the time limit in seconds, or 0 if there is no limit.
  double time_limit_seconds() const { return config_.train.time_limit_minutes * 60; }
  bool is_time_up() const {
    return time_limit_seconds() > 0 && state_.training_seconds >= time_limit_seconds();
  }

  Config config_;
  Device device_;
  TrainerOptions options_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<StepRunner> step_runner_;
  std::unique_ptr<CheckpointWriter> checkpoint_writer_;
  std::unique_ptr<RunLog> run_log_;

  RunState state_;
  EpochTimeAccumulator epoch_time_accumulator_;
  std::optional<TaskEvaluation> last_evaluation_;
  std::optional<BaseReference> base_;  // of a run with adapters
  std::optional<Checksum> teacher_;    // of the weights of distill.teacher
  std::string task_metadata_json_;     // Task::metadata_json()
  std::string training_data_digest_;   // BatchSource::compute_digest()

  // Number of predictions or frames that were processed since the last training record was written to
  // metrics.jsonl.
  int64_t interval_processed_unit_count_ = 0;
  // Training time in seconds since the last training record was written to metrics.jsonl.
  double interval_seconds_ = 0;
};

}  // namespace tapeformer
