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
  std::string option = {};  // the option of model type "sequence" that has the value of the field
  std::string gguf = {};    // key in a GGUF file, after the architecture
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

struct TensorForm {
  RowOrder order = RowOrder::plain;
  bool is_transposed = false;  // whether a matrix is (in, out)
};

// A tensor in a file and the parameters that it contains. In names, "{}" stands for the number of a layer. A
// rule whose names end in ".*" stands for a weight and a bias.
struct TensorRule {
  std::string huggingface, gguf;  // names of the tensor; an empty name: the format does not have it
  std::vector<std::string> parameters;
  TensorForm huggingface_form = {}, gguf_form = {};
  bool is_scaled = false;  // whether the parameter is the tensor times √width
};

struct ModelFamily {
  std::string name;           // "model_type" of config.json
  std::string class_name;     // class in transformers
  std::string gguf = {};      // general.architecture of GGUF files; empty: no GGUF files
  OptionValues options = {};  // options of model type "sequence" that all models of the family have
  std::vector<FamilyField> fields = {};
  std::vector<TensorRule> tensors = {};
  std::vector<std::string> ignored_tensors = {};  // names of tensors that are not parameters
  std::string optional_prefix = {};               // a prefix of names that files may lack
};

}  // namespace tapeformer
