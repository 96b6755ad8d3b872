// An interface between the Trainer and a model type. A task provides batches, losses and evaluations. The
// Trainer handles the optimizer, the schedule, checkpoints, resume, metrics and signals in the same way for
// all tasks.
//
// A batch depends only on the config and the batch number. A checkpoint therefore contains no data loader
// state: a resumed run continues with the next batch number.
#pragma once

#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/module.h"
#include "train/config/config.h"
#include "train/distributed/communicator.h"
#include "train/metrics.h"
#include "train/signals.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// The result of an evaluation during training.
struct TaskEvaluation {
  std::string split;
  int64_t example_count = 0;
  double selection_metric = 0;  // selects the best checkpoint and drives a plateau schedule; lower is better
  double seconds = 0;
  MetricRecord metrics;          // fields for metrics.jsonl, without step and split
  MetricRecord printed_results;  // names and values of the results in the output of `train`
  std::string summary;           // text with the results, for the log
};

struct BatchLoss {
  Tensor loss;  // scalar, recorded on the tape; does not include ForwardContext::loss_terms
  // Number of predictions or frames, for the speed in the progress line. Task::speed_unit() names the unit.
  int64_t processed_unit_count = 0;
};

// The part of a batch that this process computes. In a run with one process, the slice is the whole batch.
struct BatchSlice {
  int64_t first_example = 0, example_count = 0;  // range of the examples in the batch
  // Numbers of items (predictions, utterances or labels) over which the loss is averaged. loss_divisor is the
  // number of items in the slice, and batch_loss_divisor is the number in the whole batch.
  double loss_divisor = 0, batch_loss_divisor = 0;
};

// Returns the range [first, second) of `count` examples that process `rank` of `size` computes.
std::pair<int64_t, int64_t> compute_slice_range(int64_t count, int rank, int size);

// The shapes of the tensors of a batch. A captured CUDA graph can be replayed for each batch that has the
// same layout and the same slot.
struct BatchLayout {
  std::vector<int64_t> token_shape, mask_shape;  // `mask_shape` is empty if there is no mask
  int64_t memory_token_count = 0;  // number of tokens that the model reads from its segment memory
  auto operator<=>(const BatchLayout&) const = default;
};

// Sizes and checksums of the training data and the evaluation data of a task, as text.
struct DataDigest {
  std::string training, evaluation;
};

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual const Module& model() const = 0;
  // Returns the tensors that the task keeps from one batch for the next batch, such as a segment memory.
  // Checkpoints store these tensors. Loading a checkpoint overwrites the tensors in place.
  virtual NamedTensors state() const { return {}; }
  virtual int64_t count_training_examples() const = 0;
  virtual int64_t count_evaluation_examples() const = 0;

  virtual double count_batches(double epochs) const = 0;
  // Returns the number of complete epochs among the first `batches` batches.
  virtual int64_t count_complete_epochs(int64_t batches) const = 0;
  // Returns whether metrics.jsonl gets a record with the time of each epoch.
  virtual bool reports_epochs() const { return false; }

  // Starts loading batches `first` to `end` - 1. fetch_batch() must then be called with these numbers in
  // order.
  virtual void prefetch_batches(int64_t /*first*/, int64_t /*end*/) {}
  // Fetches batch `number` and assigns it to `slot`, for later calls of get_slice() and compute_loss().
  // `slot` is the index of the batch among the micro-batches of a step.
  //
  // If the loss of the batch can be captured as a CUDA graph, returns the layout of the batch. Otherwise,
  // returns std::nullopt. Batches with equal layouts in the same slot use the same device tensors, so that a
  // captured graph can be replayed.
  virtual std::optional<BatchLayout> fetch_batch(int64_t number, int64_t slot) = 0;
  // Returns this process's slice of the batch in `slot`.
  virtual BatchSlice get_slice(int64_t slot) const = 0;
  // Returns the training loss over the examples of get_slice(slot). The slice must not be empty.
  virtual BatchLoss compute_loss(int64_t slot, const ForwardContext& context) = 0;
  // Returns the indices or ids of the examples of batch `number` as text. The error message for a non-finite
  // loss contains this text.
  virtual std::string describe_examples(int64_t number) const = 0;
  // Evaluates the model. All processes of the run must call this function, because most tasks distribute the
  // batches among the processes. Throws StoppedError if `stop` returns true between two batches. Each
  // process calls `stop` the same number of times.
  virtual TaskEvaluation evaluate(const StopCheck& stop) const = 0;

  // Adds metrics that depend on the training loss, such as bits_per_dim, to a record of metrics.jsonl.
  virtual void add_metrics(double /*loss*/, MetricRecord& /*record*/) const {}
  // Returns the unit of the speed in the progress line.
  virtual const char* speed_unit() const { return "tokens"; }
  // Returns the bits per dimension that the progress line shows for a training loss. Returns a negative
  // number if the progress line does not show bits per dimension.
  virtual double compute_progress_bits_per_dim(double /*loss*/) const { return -1; }
  // Returns a JSON object with the metadata that is needed to use the model without its training data. If no
  // metadata is needed, returns "". Checkpoints store the metadata in state.json.
  virtual std::string metadata_json() const { return ""; }
  // Returns the sizes of the data and checksums of a part of their contents. Processes compare the digests at
  // the start of a training. A resumed run compares the digest of the training data with the digest in the
  // checkpoint.
  virtual DataDigest compute_data_digest() const = 0;
};

// make_task() loads the data and builds the task of model.type, with the model on `device`. The other
// functions build the task of one model type. Each process computes one slice of each batch. `processes` must
// outlive the task. The functions throw ConfigError if the config does not match the data, and DataError if
// files are missing or invalid.
std::unique_ptr<Task> make_task(const Config& config, const DataAccessOptions& data, Device device,
                                Communicator& processes = *get_single_process_communicator());
std::unique_ptr<Task> make_autoregressive_task(const Config& config, const DataAccessOptions& data,
                                               Device device, Communicator& processes);
std::unique_ptr<Task> make_example_task(const Config& config, const DataAccessOptions& data, Device device,
                                        Communicator& processes);
std::unique_ptr<Task> make_speech_task(const Config& config, const DataAccessOptions& data, Device device,
                                       Communicator& processes);

}  // namespace tapeformer
