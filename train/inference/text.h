// Evaluation of language models on texts that are longer than a window.
#pragma once

#include <span>
#include <vector>

#include "data/text/text_dataset.h"
#include "models/autoregressive_model.h"
#include "train/evaluate.h"

namespace tapeformer {

// Returns the negative log-likelihoods in nats of all tokens except the first. Each window of max_length
// tokens of the model repeats the second half of the previous window as context.
std::vector<double> token_nats(const AutoregressiveModel& model, std::span<const int64_t> tokens);

// Evaluates all tokens of a split except the first. The recurrent form reads the tokens one after another,
// without windows. `streams` equal parts of the split run as a batch, each with an empty state at its start.
// Throws ConfigError if the model has no recurrent form of constant size, or not enough positions. `limit` is
// the maximum number of tokens per stream; 0: all.
Evaluation evaluate_carried(const AutoregressiveModel& model, const TextDataset& dataset, int64_t streams,
                            int64_t limit, const StopCheck& stop = {});

}  // namespace tapeformer
