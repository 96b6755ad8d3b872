// The declaration of one config key. Internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/options/options.h"
#include "train/config/config.h"
#include "train/config/value.h"

namespace tapeformer {

// A condition on the value of the config key `key`. `config_description` describes the configs that meet the
// condition, for example "Transformers". The error message for other configs is "belongs to
// CONFIG_DESCRIPTION, and KEY is VALUE".
struct KeyCondition {
  std::string config_description;
  std::string key;
  std::function<bool(const Config&)> is_met;
  // An optional function that returns the reason why a config does not meet the condition. The error message
  // contains this reason in parentheses.
  std::function<std::string(const Config&)> explain = nullptr;
};

// The conditions under which a key has an effect. All conditions must hold. If the list is empty, the key has
// an effect in every config.
using KeyScope = std::vector<KeyCondition>;

// The declaration of a config key: its name and type, functions that get and set its value in a Config, and
// the configs and commands that use it.
struct SchemaKey {
  std::string table_name;
  OptionSpec spec;
  KeyScope scope;  // configs in which the key has an effect
  std::function<OptionValue(const Config&)> get;
  std::function<void(Config&, const OptionValue&)> set;
  std::function<OptionValue(const Config&)> get_default;  // returns the default in a config
  std::function<void(Config&)> reset;                     // sets the default
  // Returns an error message for an invalid value, or "" for a valid value. If the function is empty, all
  // values that match `spec` are valid.
  std::function<std::string(const OptionValue&)> find_error;
  // A key ("table.key"). A layer that changes this key from its default and does not set that key resets it.
  std::string excluded_key = {};

  std::string name() const { return table_name + "." + spec.name; }
  bool is_default(const Config& config) const { return get(config) == get_default(config); }
  std::string format(const OptionValue& value) const { return format_option_value(value, spec.allow_scalar); }
  // Returns the first condition of `scope` that does not hold, or null if all conditions hold and the key has
  // an effect.
  const KeyCondition* find_unmet_condition(const Config& config) const;
  // Returns the reason why a command with this purpose does not use the key, or "" if the command uses the
  // key.
  std::string explain_unused_by(ConfigPurpose purpose) const;
};

}  // namespace tapeformer
