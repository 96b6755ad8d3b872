// Types of models. A type has a name and options of its own; the options of encoders are shared.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "core/options/options.h"
#include "models/attention/pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {

struct ModelKind {
  std::string name;
  std::string help;  // a one-line description
  std::vector<OptionSpec> options = {};
  // Returns invalid options and contradictions. `options` has a value for each option of the kind. Optional.
  std::function<std::vector<OptionProblem>(const OptionValues& options, const AttentionPattern& attention)>
      find_problems = nullptr;
  std::string data_of = {};  // a type of models, whose data sets models of this type can learn, too
};

// See Registry in core/options/part.h.
void register_model_kind(ModelKind kind);
const std::deque<ModelKind>& list_model_kinds();
const ModelKind& find_model_kind(const std::string& name);

// Returns the options of a model. Members that depend on the data have their defaults. `values` has a value
// for each option of the kind. If a kind of attention lacks dropout of weights, there is none. `Options` is
// AutoregressiveModelOptions, ClassifierOptions, SetTransformerOptions, SpeechModelOptions or
// TranslationModelOptions.
template <class Options>
Options read_model_options(const OptionValues& values, const AttentionPattern& attention);

}  // namespace tapeformer
