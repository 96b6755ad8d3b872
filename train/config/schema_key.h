// The declaration of one config key. Internal to the config code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/options/options.h"
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
  std::function<OptionValue(const Config&)> get;
  std::function<void(Config&, const OptionValue&)> set;
  // Returns an error message for an invalid value, or "" for a valid value. If the function is empty, all
  // values that match `spec` are valid.
  std::function<std::string(const OptionValue&)> find_error;

  std::string name() const { return table_name + "." + spec.name; }
  std::string format(const OptionValue& value) const { return format_option_value(value, spec.allow_scalar); }
  // Returns the first condition of `scope` that does not hold, or null if all conditions hold and the key has
  // an effect.
  const KeyCondition* find_unmet_condition(const Config& config) const;
  // Returns the reason why a command with this purpose does not use the key, or "" if the command uses the
  // key.
  std::string explain_unused_by(ConfigPurpose purpose) const;
};

}  // namespace tapeformer
