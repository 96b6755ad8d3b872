// The model that a benchmark measures. A config file or the options of the benchmark describe the model. The
// default values of the options describe the MNIST model of "Transformers are RNNs".
#pragma once

#include <vector>

#include "models/autoregressive_model.h"
#include "train/bench/bench.h"
#include "train/config/config.h"

namespace tapeformer {

struct BenchmarkedModel {
  AutoregressiveModelOptions model;
  OptimizerConfig optimizer;
  RunConfig run;  // run.precision is --precision or, if this option is empty, the precision of the config
  int64_t batch_size = 0;
  uint64_t seed = 0;
};

// Returns the command-line options --config, --precision, --layers, --heads, --head-dim, --feedforward,
// --mixtures, --attention, --length and --dropout.
std::vector<OptionSpec> make_model_option_specs();
// Returns the command-line option --batch with the default value 10. The option sets the batch size if
// --config is not given.
OptionSpec make_batch_option(std::string help);
// Returns the model that a benchmark measures. If the option --config names a config file, the file
// determines the model and the batch size. Otherwise, the other options determine the model, and `batch_size`
// is the batch size. Throws ConfigError if the config or an option is invalid.
BenchmarkedModel choose_model(const BenchmarkArguments& arguments, int64_t batch_size);

// Returns a batch of random tokens below min(vocabulary, 256), of shape (batch, max_length + 1) and dtype
// uint8.
Batch make_random_batch(const AutoregressiveModelOptions& model, int64_t batch, uint64_t seed);

}  // namespace tapeformer
