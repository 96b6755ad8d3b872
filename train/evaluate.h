// Evaluation of a model on a data set.
#pragma once

#include <optional>
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

struct Evaluation {
  std::string split;
  int64_t example_count = 0;
  double nats_per_dim = 0;  // mean negative log-likelihood of the unmasked tokens
  double bits_per_dim = 0;  // nats_per_dim / ln 2
  double accuracy = -1;     // share of correctly predicted tokens; -1 for models of images
  double seconds = 0;
  std::optional<TextScore> text_score;  // set only for texts
};

// Returns the number of tokens of a batch that a model predicts and that are not masked. The loss of an
// autoregressive model is the mean over these tokens.
double count_unmasked_tokens(const Batch& batch);

// Returns the results of an evaluation by name: nats_per_dim, bits_per_dim, the scores in `text_score` if it
// is set, and the accuracy unless it is -1.
std::vector<std::pair<std::string, double>> list_named_results(const Evaluation& evaluation);

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

struct ExampleEvaluation {
  std::string split;
  int64_t example_count = 0;
  std::vector<std::pair<std::string, double>> scores;  // means over the examples; the first is the loss
  double seconds = 0;
};

// Evaluates a model that predicts one result for each example. For the arguments and errors, see evaluate()
// of an AutoregressiveModel.
ExampleEvaluation evaluate(const ExampleModel& model, const Dataset& dataset, int64_t batch_size,
                           int64_t max_examples = 0, uint64_t seed = 0, const StopCheck& stop = {},
                           Communicator& processes = *get_single_process_communicator());

}  // namespace tapeformer
