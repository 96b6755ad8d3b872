// The one declaration of every config key. Internal to the config code: users see train/config/config.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/options.h"
#include "train/config/config.h"
#include "train/config/scope.h"

namespace tapeformer {

// A key is an OptionSpec with its place in the typed struct. Lists of integers are lists of whole doubles in
// an OptionValue; `whole` tells them apart.
struct SchemaKey {
  std::string table;
  OptionSpec spec;
  KeyScope scope;  // configs in which the key has an effect
  KeyRole role = KeyRole::training;
  bool in_benchmarks = false;  // whether benchmarks use the key
  bool changeable = false;     // whether a resumed run may have another value than its checkpoint
  std::function<OptionValue(const Config&)> get;
  std::function<void(Config&, const OptionValue&)> set;
  bool whole = false;  // list of numbers: integers only
  size_t count = 0;    // list: exact length; 0: any
  std::function<std::string(const OptionValue&)>
      problem;  // optional: what is wrong with a value, "" if nothing

  std::string name() const { return table + "." + spec.name; }
  // Returns the first condition of the scope that does not hold; null if the key has an effect.
  const KeyCondition* broken_condition(const Config& config) const;
  // Returns the reason why a command does not use the key; "" if it uses the key.
  std::string reason_unused_by(ConfigUse use) const;

  SchemaKey& range(double min, double max);
  SchemaKey& at_least(double min);
  SchemaKey& below_one();  // 0 <= x < 1
  SchemaKey& one_of(std::vector<std::string> choices);
  SchemaKey& one_of_integers(std::vector<int64_t> choices);
  SchemaKey& may_change_on_resume();
  SchemaKey& used_by_benchmarks();
};

// Tables in the order of the resolved file; [attention] has no keys of its own here.
std::vector<std::string> config_tables();

// Returns all keys, grouped by table. The names of the catalogue are the choices of model.attention; without
// names, any text is valid.
std::vector<SchemaKey> config_schema(const AttentionCatalogue& catalogue);

// Returns the reason why the condition does not hold: "belongs to OWNER, and KEY is VALUE".
std::string broken_text(const KeyCondition& condition, const Config& config);

// Returns whether the model has attention layers.
bool uses_attention(const Config& config);

}  // namespace tapeformer
