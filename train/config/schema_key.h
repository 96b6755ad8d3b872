// The declaration of one config key. Internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/options.h"
#include "train/config/config.h"
#include "train/config/scope.h"
#include "train/config/value.h"

namespace tapeformer {

// The declaration of a config key: its name and type, functions that get and set its value in a Config, and
// the configs and commands that use it.
struct SchemaKey {
  std::string table_name;
  OptionSpec spec;
  KeyScope scope;  // configs in which the key has an effect
  KeyRole role = KeyRole::training;
  bool is_used_by_benchmarks = false;
  bool is_changeable_on_resume = false;
  std::function<OptionValue(const Config&)> get;
  std::function<void(Config&, const OptionValue&)> set;
  bool requires_integers = false;  // whether the elements of a list must be integers
  size_t list_length = 0;          // length of a list; 0: any length
  bool allow_scalar = false;       // whether a single string stands for a list of one string
  // Returns an error message for an invalid value, or "" for a valid value. If the function is empty, all
  // values that match `spec` are valid.
  std::function<std::string(const OptionValue&)> find_error;

  std::string name() const { return table_name + "." + spec.name; }
  ListConstraints list_constraints() const { return {requires_integers, list_length, allow_scalar}; }
  // Returns the first condition of `scope` that does not hold, or null if all conditions hold and the key has
  // an effect.
  const KeyCondition* find_unmet_condition(const Config& config) const;
  // Returns the reason why a command with this purpose does not use the key, or "" if the command uses the
  // key.
  std::string explain_unused_by(ConfigPurpose purpose) const;

  SchemaKey& require_range(double min, double max);
  SchemaKey& require_at_least(double min);
  SchemaKey& require_fraction_below_one();  // restricts the value x to 0 <= x < 1
  SchemaKey& require_one_of(std::vector<std::string> choices);
  SchemaKey& require_one_of_integers(std::vector<int64_t> choices);
  SchemaKey& allow_change_on_resume();
  SchemaKey& mark_used_by_benchmarks();
};

}  // namespace tapeformer
