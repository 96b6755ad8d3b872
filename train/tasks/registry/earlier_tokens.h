// The tokens of a run that continues an earlier training: the tokenizer of a model of text or translation, or
// the phones of a speech model.
//
// A new run with model.init and model.init_tokens = "keep" takes the tokens of model.init, because its
// weights were trained with them. With "new", the tokens are made from the data, and the parameters of
// Task::list_token_modules() keep their random values.
#pragma once

#include <memory>
#include <string>

#include "train/tasks/task.h"

namespace tapeformer {

// Returns make_task() with the tokens of an earlier checkpoint in `environment`:
// - If `resumed_run` is not empty, those of its last checkpoint, if the run has trained a SentencePiece model
//   or has the tokens of model.init.
// - Otherwise, those of model.init, unless they are new.
//
// Throws ConfigError if the data set has other tokens than model.init: another kind of tokenizer, another
// SentencePiece model in data.sentencepiece_model, or other phones of TIMIT. Throws DataError for a text with
// characters or phones that the tokens lack. Throws CheckpointError if the checkpoint is damaged.
std::unique_ptr<Task> make_task_with_earlier_tokens(const Config& config, TaskEnvironment environment,
                                                    const std::string& resumed_run);

// Returns whether the run has the tokens of model.init.
bool keeps_initial_tokens(const Config& config);

}  // namespace tapeformer
