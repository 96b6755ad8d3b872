// Families of language models in the formats of other programs. A family declares once how the fields of its
// config.json and the keys of its GGUF files are options of a model, and how its tensors are parameters of a
// model. Import and export read the same declaration in the two directions. Internal to train.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

using ConfigJson = nlohmann::ordered_json;  // the contents of a config.json

// A field of config.json. A field without `option` and `accepted` does not change what a model computes.
struct FamilyField {
  std::string key;
  // The option of model type "sequence" that has the value of the field, or "attention.KIND.NAME".
  std::string option = {};
  std::string gguf = {};  // key in a GGUF file, after the architecture
  // Value of a field that is missing or null. Without a fallback and `derive`, the field is required.
  std::optional<ConfigJson> fallback = {};
  std::function<ConfigJson(const ConfigJson& config)> derive = {};  // computes the fallback from other fields
  // Values of the field and the corresponding values of the option, if the option is a text.
  std::vector<std::pair<std::string, std::string>> names = {};
  std::vector<ConfigJson> accepted = {};  // without `option`: the values that the program implements
  std::vector<std::string> aliases = {};  // other names of the field
};

// The order of the rows of a tensor in a file.
enum class RowOrder {
  plain,        // the rows of the first parameter, then those of the second one, …
  by_head,      // for each head, the rows of each parameter
  interleaved,  // rows 2i and 2i + 1 of a head are the rows i and dim / 2 + i of the parameter
};

// The shape of a tensor in a file with the rows of a parameter.
enum class FileShape {
  same,
  conv,    // (channels, 1, kernel) for (channels, kernel)
  vector,  // (heads,) for (heads, 1)
};

struct TensorForm {
  RowOrder order = RowOrder::plain;
  bool is_transposed = false;  // whether a matrix is (in, out)
  FileShape shape = FileShape::same;
};

// A tensor in a file and the parameters that it contains. In names, "{}" stands for the number of a layer. A
// rule whose names end in ".*" stands for a weight and a bias. A parameter "NAME[query]", "NAME[key]" or
// "NAME[value]" stands for the rows of a parameter that belong to the queries, the keys or the values.
struct TensorRule {
  std::string huggingface, gguf = {};  // names of the tensor; an empty name: the format does not have it
  std::vector<std::string> parameters;
  TensorForm huggingface_form = {}, gguf_form = {};
  bool is_scaled = false;  // whether the parameter is the tensor times √width
  std::string kind = {};   // the kind of attention of the layers that have the tensor; empty: all
};

struct ModelFamily {
  std::string name;        // "model_type" of config.json
  std::string class_name;  // class in transformers
  std::string gguf = {};   // general.architecture of GGUF files; empty: no GGUF files
  // Options of model type "sequence" that all models of the family have, and options "attention.KIND.NAME".
  OptionValues options = {};
  std::vector<FamilyField> fields = {};
  std::vector<TensorRule> tensors = {};
  // Names of tensors that are not parameters. A name that ends in "*" stands for all names that begin so.
  std::vector<std::string> ignored_tensors = {};
  std::string optional_prefix = {};  // a prefix of names that files may lack
  // A prefix of names in files of a larger model, and the prefix in the rules.
  std::pair<std::string, std::string> outer_prefix = {};
  // Ends of names in files, and the ends in the rules.
  std::vector<std::pair<std::string, std::string>> other_names = {};
  std::string outer_name =
      {};  // "model_type" of a larger model, whose "text_config" is a config of the family
  // Values of the field "layer_types", and the kind of attention of each. If the field is missing, all layers
  // have the first kind. A family with one value does not write the field.
  std::vector<std::pair<std::string, std::string>> layer_kinds = {{"full_attention", "softmax"}};
  // Replaces fields of a config.json by fields of the list, and the inverse. read_fields() throws
  // CheckpointError, which begins with `source`.
  std::function<void(ConfigJson& config, const std::string& source)> read_fields = {};
  std::function<void(ConfigJson& config)> write_fields = {};
  std::vector<std::string> ignored_rotary_fields = {};  // fields of "rope_parameters" without effect
};

}  // namespace tapeformer
