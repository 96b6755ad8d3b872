// Comparison of the sizes in config.toml and state.json of a checkpoint with its tensors, before a model of
// these sizes is allocated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/autoregressive_model.h"
#include "models/speech/model.h"
#include "train/checkpoint/checkpoint.h"

namespace tapeformer {

// A tensor whose shape follows from a size of the model.
struct SizedTensor {
  std::string name;
  std::optional<Shape> shape;  // nothing: the model has no such tensor
  std::string source;          // "config.toml: model.layers"
};

// Returns a few tensors whose shapes contain every size that determines the memory of the parameters.
std::vector<SizedTensor> sized_tensors(const AutoregressiveOptions& options);
std::vector<SizedTensor> sized_tensors(const SpeechModelOptions& options);

// Throws CheckpointError if a tensor of the checkpoint has another shape. The message names the entry and
// both shapes.
void check_model_sizes(const Checkpoint& checkpoint, const std::vector<SizedTensor>& expected);

}  // namespace tapeformer
