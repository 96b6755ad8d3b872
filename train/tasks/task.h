// A task is what a run is about: its config, model, data, loss and evaluation. make_task() makes a task for
// training. load_task() restores the task of a checkpoint. The Trainer handles the
// optimizer, the schedule, checkpoints, resume, metrics and signals in the same way for all tasks, and
// commands use a task without knowing the type of its model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/options/option_table.h"
#include "data/speech/phones/phones.h"
#include "data/text/tokenizer.h"
#include "models/layers/module.h"
#include "train/config/config.h"
#include "train/distributed/communicator.h"
#include "train/metrics.h"
#include "train/report.h"
#include "train/signals.h"
#include "train/tasks/data_access.h"
#include "train/tasks/step_batch.h"

namespace tapeformer {

// Tokens of an earlier training that a training takes instead of making them from its data.
struct TrainedTokens {
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;  // of texts and translations
  std::optional<PhoneTable> phone_table = {};            // of speech
  std::string advice = {};                               // SplitOptions::token_advice
};

// What a task needs besides its config. `processes` must outlive the task.
struct TaskEnvironment {
  DataAccessOptions data = {};
  Device device = kCpu;  // device of the model
  // The processes of the run. Each computes a slice of each batch and some batches of an evaluation.
  Communicator& processes = *get_single_process_communicator();
  TrainedTokens tokens = {};
};

// Maximum of the options "beam".
inline constexpr int64_t kMaxBeamSize = 1000;

// Options of a command for the models of one subject; see Task::subject().
struct SubjectOptions {
  std::string subject;
  std::vector<OptionSpec> options = {};
};

struct EvaluationOptions {
  std::string split = {};  // "train", "valid" or "test"; "": the split that training evaluates on
  // Maximum number of examples; 0: all, of "train" at most data.limit. If nullopt, the limits of the config
  // apply.
  std::optional<int64_t> limit = {};
  int64_t batch_size = 0;  // 0: train.eval_batch_size, or data.batch_size if it is 0
  uint64_t seed = 0;       // affects only attention kinds with the capability has_random_evaluation
  // Values of some of the options that the type of the task declares in list_evaluation_options().
  OptionValues task_options = {};
  bool is_during_training = false;  // whether to choose the fastest of several ways to decode

  // Returns the values of the options in `table`. Throws std::invalid_argument if `task_options` has others.
  template <class S>
  S read_task_options(const OptionTable<S>& table) const {
    return table.read(complete_options(table.specs(), task_options));
  }
};

using OutputFiles = std::vector<std::pair<std::filesystem::path, std::string>>;  // with their contents

struct TaskEvaluation {
  std::string split = {};
  int64_t example_count = 0;
  double selection_metric = 0;  // selects the best checkpoint and drives a plateau schedule; lower is better
  double seconds = 0;
  MetricRecord metrics = {};      // fields for metrics.jsonl, without step, split, examples and seconds
  MetricRecord results = {};      // names and values of the results in the output of commands
  std::string summary = {};       // text with the results, for the log
  Report details = {};            // further fields in the output of "eval"
  std::string headline = {};      // lines above the output of "eval"; may be empty
  OutputFiles output_files = {};  // the files of Evaluator::list_output_files(), for the caller to write
};

// The data of an evaluation, and the evaluation of the task's model on them. The task must outlive it.
class Evaluator {
 public:
  Evaluator() = default;
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  virtual ~Evaluator() = default;

  virtual int64_t count_examples() const = 0;
  // Returns the size of the data and a checksum of a part of their contents.
  virtual std::string compute_digest() const = 0;
  // Returns files of the data that list_input_paths() (train/cli/run_options.h) does not know.
  virtual std::vector<std::filesystem::path> list_input_files() const { return {}; }
  // Returns the files that the options name for results.
  virtual std::vector<std::filesystem::path> list_output_files() const { return {}; }
  // Evaluates the model without dropout. All processes of the run must call this function. Throws
  // DivergenceError if a loss is not finite, and StoppedError if `stop` returns true between two batches.
  // Each process calls `stop` the same number of times.
  virtual TaskEvaluation evaluate(const StopCheck& stop = {}) const = 0;
};

struct BatchLoss {
  Tensor loss;  // scalar, recorded on the tape; does not include ForwardContext::loss_terms
  // Number of predictions or frames, for the speed in the progress line. Task::speed_unit() names the unit.
  int64_t processed_unit_count = 0;
};

class Task {
 public:
  explicit Task(Config config) : config_(std::move(config)) {}
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  const Config& config() const { return config_; }
  // Returns what the model processes: "images", "text", "symbols", "classes", "sets", "speech" or
  // "translations". Messages and the options of commands name it.
  virtual std::string subject() const = 0;
  virtual Module& model() const = 0;
  // Returns the tensors that the task keeps from one batch for the next batch, such as a segment memory.
  // Checkpoints store these tensors. Loading a checkpoint overwrites the tensors in place.
  virtual NamedTensors state() const { return {}; }
  // Returns a JSON object with the metadata that is needed to use the model without its training data. If no
  // metadata is needed, returns "". Checkpoints store the metadata in state.json.
  virtual std::string metadata_json() const { return ""; }

  // Returns the names of the modules of the model whose parameters belong to single tokens, such as the
  // embeddings.
  virtual std::vector<std::string> list_token_modules() const { return {}; }

  // Declares the options of evaluations that other types of tasks do not have. A type that has options
  // declares a function of this name.
  static std::vector<SubjectOptions> list_evaluation_options() { return {}; }
  // Opens the data of an evaluation. Throws ConfigError if the options do not match the task, and DataError
  // if files are missing or invalid.
  virtual std::unique_ptr<Evaluator> open_evaluation(const EvaluationOptions& options) const = 0;

  // Returns the training data. Only tasks of make_task() have training data.
  BatchSource& batches() const;
  // Returns the layout of the batch if its loss can be captured as a CUDA graph, and nullopt otherwise.
  virtual std::optional<BatchLayout> make_graph_layout(const StepBatch& /*batch*/) const { return {}; }
  // Makes compute_loss() return the loss of imitating the teacher; see DistillConfig. Throws ConfigError if
  // the models do not fit.
  virtual void set_teacher(std::shared_ptr<const Task> teacher);
  // Returns the training loss over the examples of the batch, which must not be empty.
  virtual BatchLoss compute_loss(const StepBatch& batch, const ForwardContext& context) = 0;

  // Returns whether metrics.jsonl gets a record with the time of each epoch.
  virtual bool reports_epochs() const { return false; }
  // Adds metrics that depend on the training loss, such as bits_per_dim, to a record of metrics.jsonl.
  virtual void add_metrics(double /*loss*/, MetricRecord& /*record*/) const {}
  // Returns the unit of the speed in the progress line.
  virtual const char* speed_unit() const { return "tokens"; }
  // Returns the bits per dimension that the progress line shows for a training loss. Returns a negative
  // number if the progress line does not show bits per dimension.
  virtual double compute_progress_bits_per_dim(double /*loss*/) const { return -1; }

 protected:
  // Null for a task of a checkpoint. Its thread must not use members of the derived class, which are
  // destroyed first.
  std::unique_ptr<BatchSource> batches_;

 private:
  Config config_;
};

// Throws ConfigError unless the task has one of the subjects. `what` is what needs such a model, for example
// "--context".
void require_subject(const Task& task, const std::vector<std::string>& subjects, const std::string& what);

}  // namespace tapeformer
