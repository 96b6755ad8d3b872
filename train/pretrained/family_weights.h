// The tensors of a family as the parameters of a model, in both directions. Internal to train/pretrained.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "models/encoder/encoder_layer.h"
#include "train/pretrained/families/model_family.h"
#include "train/pretrained/weight_source.h"

namespace tapeformer {

enum class PretrainedFormat { huggingface, gguf };

// The sizes that the order of rows depends on.
struct FamilySizes {
  struct Layer {
    std::string kind;  // of attention
    HeadSizes heads;
  };
  int64_t width = 0;
  std::vector<Layer> layers = {};
};
FamilySizes get_family_sizes(const EncoderOptions& options);

// Copies the tensors of a file into the parameters of a model. Throws CheckpointError if a tensor is missing,
// has another shape, or belongs to no parameter. If the model has tied embeddings, the file may also contain
// the predictor, which must then be equal to the embedding.
void load_family_weights(const ModelFamily& family, PretrainedFormat format, const FamilySizes& sizes,
                         const WeightSource& source, const NamedTensors& parameters);

// A tensor of a file that is to be written. read() computes its values, float32 on the CPU.
struct FamilyTensor {
  std::string name;
  Shape shape;  // (out, in) of a matrix, unless the form of the tensor is transposed
  std::function<Tensor()> read;
};

// Returns the tensors of a file with the parameters of a model, in the order of the rules. Throws ConfigError
// if the format of the family has no tensor for a parameter, or if two parameters that are one tensor in the
// file differ.
std::vector<FamilyTensor> list_family_tensors(const ModelFamily& family, PretrainedFormat format,
                                              const FamilySizes& sizes, const NamedTensors& parameters);

// Returns the name in the source of the tensor with this name in a rule, or null if there is none.
std::optional<std::string> find_source_name(const ModelFamily& family, PretrainedFormat format,
                                            const WeightSource& source, const std::string& name);

// Returns the name of the tensor with the predictor.
std::string find_predictor_name(const ModelFamily& family, PretrainedFormat format);

}  // namespace tapeformer
