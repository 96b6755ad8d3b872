// Comparison of the model sizes in config.toml and state.json with the tensors of a checkpoint. Callers
// compare them before they allocate the model, because a model of wrong sizes could exhaust the memory.
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
struct SizedTensor {
  std::string name;
  std::optional<Shape> shape;  // if empty, the model must not have the tensor
  std::string source;          // for example "config.toml: model.layers"
};

// Returns tensors whose shapes together determine the number of parameters of the model.
std::vector<SizedTensor> sized_tensors(const AutoregressiveOptions& options);
std::vector<SizedTensor> sized_tensors(const ClassifierOptions& options);
std::vector<SizedTensor> sized_tensors(const SetTransformerOptions& options);
std::vector<SizedTensor> sized_tensors(const SpeechModelOptions& options);

// Throws CheckpointError if a tensor of the checkpoint has a different shape. The message names the entry and
// both shapes.
void check_model_sizes(const Checkpoint& checkpoint, const std::vector<SizedTensor>& expected);

}  // namespace tapeformer
