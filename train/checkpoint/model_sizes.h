// Comparison of the model sizes in config.toml and state.json with the tensors of a checkpoint. Callers make
// this comparison before they allocate the model, because wrong sizes could exhaust the memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/autoregressive_model.h"
#include "models/classifier.h"
#include "models/set_transformer.h"
#include "models/speech/model.h"
#include "train/checkpoint/checkpoint.h"

namespace tapeformer {

// A tensor whose shape depends on a size in the config or in state.json.
struct ExpectedTensor {
  std::string name;
  std::optional<Shape> shape;  // expected shape; nullopt: the checkpoint must not contain the tensor
  std::string source;          // file and key of the size, for example "config.toml: model.layers"
};

// Returns tensors whose shapes determine all sizes of the model, and therefore the number of parameters.
std::vector<ExpectedTensor> list_expected_tensors(const AutoregressiveModelOptions& options);
std::vector<ExpectedTensor> list_expected_tensors(const ClassifierOptions& options);
std::vector<ExpectedTensor> list_expected_tensors(const SetTransformerOptions& options);
std::vector<ExpectedTensor> list_expected_tensors(const SpeechModelOptions& options);

// Throws CheckpointError if a tensor is missing, has a different shape, or must not be in the checkpoint. The
// message names the tensor, its `source` and both shapes.
void check_model_sizes(const Checkpoint& checkpoint, const std::vector<ExpectedTensor>& expected);

}  // namespace tapeformer
