// Evaluation of a model on a data set whose batches the processes of a run divide.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/text/text_dataset.h"
#include "models/autoregressive_model.h"
#include "models/example_model.h"
#include "train/distributed/communicator.h"
#include "train/signals.h"

namespace tapeformer {

// The loss of a language model on a text, and the numbers of predicted tokens, bytes and characters.
struct TextScore {
  int64_t token_count = 0, byte_count = 0, character_count = 0;
  // Number of tokens that stand for unknown characters. Such a token has a loss, but no bytes and characters.
  int64_t unknown_count = 0;
  double nats = 0;  // sum of the negative log-likelihoods of the tokens

  // Adds a predicted token to the counts.
  void add_token(const Tokenizer& tokenizer, int64_t token);
  void add(const TextScore& other);
  double bits_per_byte() const;       // NaN if there are no bytes
  double bits_per_character() const;  // NaN if there are no characters
  double perplexity() const;          // exp of the mean nats per token
};

// Calls `visit` with the numbers of the batches of one process: `rank`, `rank` + `size`, …. Throws
// StoppedError if `stop` returns true. Each process calls `stop` the same number of times.
void visit_own_batches(int64_t batches, int rank, int size, const StopCheck& stop,
                       const std::function<void(int64_t number)>& visit);

// Sums of several quantities over the examples of each batch. The total adds the sums in the order of the
// batches, so that it does not depend on the number of processes.
class BatchSums {
 public:
  BatchSums(int64_t batches, size_t quantities)
      : values_(Tensor::zeros({std::max<int64_t>(batches, 1), static_cast<int64_t>(quantities)},
                              DType::float64)) {}
  // Each process sets the sums of its batches.
  void set(int64_t batch, std::span<const double> sums) const;
  // Returns the totals on all processes, which must all call this function once.
  std::vector<double> total(Communicator& processes) const;

 private:
  Tensor values_;  // (batches, quantities) float64
};

// BatchSums of the quantities in S, a struct whose members are doubles.
template <class S>
class NamedBatchSums {
 public:
  explicit NamedBatchSums(int64_t batches) : sums_(batches, std::tuple_size_v<Values>) {}
  void set(int64_t batch, const S& sums) const { sums_.set(batch, std::bit_cast<Values>(sums)); }
  S total(Communicator& processes) const {
    Values values;
    std::ranges::copy(sums_.total(processes), values.begin());
    return std::bit_cast<S>(values);
  }

 private:
  using Values = std::array<double, sizeof(S) / sizeof(double)>;
  BatchSums sums_;
};

struct Evaluation {
  int64_t example_count = 0;
  double nats_per_dim = 0;                   // mean negative log-likelihood of the unmasked tokens
  double bits_per_dim = 0;                   // nats_per_dim / ln 2
  std::optional<double> accuracy = {};       // share of correctly predicted tokens; not for models of images
  std::optional<TextScore> text_score = {};  // set only for texts
};

// Returns the number of tokens of a batch that a model predicts and that are not masked. The loss of an
// autoregressive model is the mean over these tokens.
double count_unmasked_tokens(const Batch& batch);

// Evaluates the model on the first `max_examples` examples of the data set, in order and without dropout. If
// `max_examples` is 0, evaluates the model on all examples. All unmasked tokens have equal weights. `seed`
// affects only attention kinds with the capability has_random_evaluation.
//
// If the model has a segment memory, process 0 evaluates all batches. Otherwise, the batches are distributed
// among the processes. All processes must call evaluate() with the same arguments. The losses and scores do
// not depend on the number of processes.
//
// Throws DivergenceError if the loss of a batch is not finite, and StoppedError if `stop` returns true before
// a batch. `stop` is called the same number of times on all processes.
Evaluation evaluate(const AutoregressiveModel& model, const Dataset& dataset, int64_t batch_size,
                    int64_t max_examples = 0, uint64_t seed = 0, const StopCheck& stop = {},
                    Communicator& processes = *get_single_process_communicator());

// Evaluates a model that predicts one result for each example. Returns the names and the means of the scores;
// the first is the loss. For the arguments and errors, see evaluate() of an AutoregressiveModel.
std::vector<std::pair<std::string, double>> evaluate(
    const ExampleModel& model, const Dataset& dataset, int64_t batch_size, int64_t max_examples = 0,
    uint64_t seed = 0, const StopCheck& stop = {},
    Communicator& processes = *get_single_process_communicator());

}  // namespace tapeformer
