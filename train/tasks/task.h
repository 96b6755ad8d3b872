// What a run trains: the model, the loss of batch number n, and the evaluation. The Trainer knows no more of
// it, so optimizer, schedule, checkpoints, resume, metrics and signals are one mechanism for all kinds.
//
// A batch is a pure function of the config and its number. Nothing about the order of the data is saved: a
// resumed run asks for the next number.
#pragma once

#include <memory>
#include <string>

#include "models/module.h"
#include "train/config/config.h"
#include "train/metrics.h"
#include "train/signals.h"
#include "train/tasks/data_access.h"

namespace tapeformer {

// What a model does on the examples that training evaluates on.
struct TaskEvaluation {
  std::string split;
  int64_t examples = 0;
  double criterion = 0;  // what the best checkpoint and a plateau schedule go by; lower is better
  double seconds = 0;
  MetricRecord metrics;  // what metrics.jsonl gets after step and split
  MetricRecord figures;  // the same under the names that commands print
  std::string text;      // the same in words
};

struct BatchLoss {
  Tensor loss;         // scalar, recorded on the tape
  int64_t tokens = 0;  // what the speed is counted in: predictions or frames
};

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual const Module& model() const = 0;
  virtual int64_t training_examples() const = 0;
  virtual int64_t evaluation_examples() const = 0;

  // Batches of so many epochs, and the whole epochs among the first batches.
  virtual double batches_in(double epochs) const = 0;
  virtual int64_t epochs_done(int64_t batches) const = 0;
  // Whether metrics.jsonl gets a line with its seconds for every epoch.
  virtual bool reports_epochs() const { return false; }

  // Calls of fetch come with rising numbers; none reaches `last` once prepare_batches has told of it.
  virtual void prepare_batches(int64_t /*first*/, int64_t /*last*/) {}
  // Gets batch `number` ready for loss() in one of the places for the batches of a step. Returns what decides
  // on the launches of its loss on a device, "" where that is more than the shapes of tensors: batches of one
  // layout are put into the same tensors, so that a step can be repeated with another batch.
  virtual std::string fetch(int64_t number, int64_t place) = 0;
  // Returns the number of predictions, utterances or labels over which the loss of the fetched batch is a
  // mean.
  virtual double loss_count(int64_t place) const = 0;
  virtual BatchLoss loss(int64_t place, const ForwardContext& context) = 0;
  // Returns the examples of a batch, for the message about a loss that is not finite.
  virtual std::string examples_of(int64_t number) const = 0;
  // Throws Stopped if `stop` returns true between two batches.
  virtual TaskEvaluation evaluate(const StopCheck& stop) const = 0;

  // Adds entries that follow from a training loss to a record of metrics.jsonl.
  virtual void add_metrics(double /*loss*/, MetricRecord& /*record*/) const {}
  // Returns the unit of the speed in the progress line.
  virtual const char* speed_unit() const { return "tokens"; }
  // Bits per dimension that the progress line shows; negative: none.
  virtual double shown_bits(double /*loss*/) const { return -1; }
  // What else a checkpoint needs so that the model can be used where the data is not, a JSON object; empty:
  // nothing.
  virtual std::string description() const { return ""; }
};

// The task of the config's model type, its model on the device. Loads the data. Throws ConfigError,
// DataError.
std::unique_ptr<Task> make_task(const Config& config, const DataAccess& data, Device device);
std::unique_ptr<Task> make_autoregressive_task(const Config& config, const DataAccess& data, Device device);
std::unique_ptr<Task> make_speech_task(const Config& config, const DataAccess& data, Device device);

}  // namespace tapeformer
