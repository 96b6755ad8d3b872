// Which model a benchmark measures: that of a config, or one given by options, the paper's MNIST model unless
// they say otherwise.
#pragma once

#include <vector>

#include "models/autoregressive_model.h"
#include "train/cli/common.h"
#include "train/config/config.h"

namespace tapeformer {

struct ModelChoice {
  AutoregressiveOptions model;
  OptimizerConfig optimizer;
  RunConfig run;  // of the config: the precision
  int64_t batch = 0;
  uint64_t seed = 0;
};

// config, layers, heads, head-dim, feedforward, mixtures, attention, length, dropout.
std::vector<OptionSpec> model_option_specs();
// With --config, the model, batch size and optimizer are those of the config (and --set), and the options for
// the model do nothing; `batch` is that of a choice by options. Throws ConfigError.
ModelChoice choose_model(const CommandLine& line, int64_t batch);

// Random tokens: one more than the model predicts, for each of the batch.
Batch random_batch(const AutoregressiveOptions& model, int64_t batch, uint64_t seed);

}  // namespace tapeformer
