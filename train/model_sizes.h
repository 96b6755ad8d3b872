// Compares the sizes that config.toml and state.json of a checkpoint ask for with the tensors in its file,
// before a model of these sizes takes memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/autoregressive_model.h"
#include "models/speech_model.h"
#include "train/checkpoint.h"

namespace tapeformer {

// A tensor whose shape follows from a size of the model.
struct SizedTensor {
  std::string name;
  std::optional<Shape> shape;  // none: the model has no such tensor
  std::string source;          // "config.toml: model.layers"
};

// Few tensors that together hold every size on which the memory of the parameters depends.
std::vector<SizedTensor> sized_tensors(const AutoregressiveOptions& options);
std::vector<SizedTensor> sized_tensors(const SpeechModelOptions& options);

// Throws CheckpointError, naming the entry and both shapes, if the checkpoint's model has other sizes.
void check_model_sizes(const Checkpoint& checkpoint, const std::vector<SizedTensor>& expected);

}  // namespace tapeformer
