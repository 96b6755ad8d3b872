// A builder for the declarations of the config keys of one table, such as [train]. Internal to the config
// code.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "train/config/schema_key.h"

namespace tapeformer {

// The maximum value of keys such as model.layers. The product of three such values fits in int64_t.
inline constexpr double kMaxSize = 1 << 20;

template <class T>
OptionValue to_option_value(const T& value) {
  if constexpr (std::is_same_v<T, std::vector<int64_t>>)
    return std::vector<double>(value.begin(), value.end());
  else
    return value;
}

template <class T>
T from_option_value(const OptionValue& value) {
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
    const auto& numbers = std::get<std::vector<double>>(value);
    return {numbers.begin(), numbers.end()};
  } else {
    return std::get<T>(value);
  }
}

// A builder that appends the keys of one table to a list. The members of the struct `Section` determine the
// types and the defaults of the keys.
template <class Section>
class TableSchemaBuilder {
 public:
  TableSchemaBuilder(std::vector<SchemaKey>& keys, std::string table_name, Section Config::*section)
      : keys_(keys), table_name_(std::move(table_name)), section_(section) {}

  // Sets the conditions (KeyScope) and the role of the keys that are added afterwards.
  void set_scope(KeyScope scope, KeyRole role) {
    scope_ = std::move(scope);
    role_ = role;
  }
  // Declares that benchmarks use the keys that are added afterwards.
  void mark_used_by_benchmarks() { are_used_by_benchmarks_ = true; }

  template <class T>
  SchemaKey& add(const char* name, T Section::*member, const std::string& help) {
    SchemaKey key;
    key.table_name = table_name_;
    key.scope = scope_.value();  // throws if set_scope() was not called
    key.role = role_;
    key.is_used_by_benchmarks = are_used_by_benchmarks_;
    key.get = [section = section_, member](const Config& config) {
      return to_option_value(config.*section.*member);
    };
    key.set = [section = section_, member](Config& config, const OptionValue& value) {
      config.*section.*member = from_option_value<T>(value);
    };
    key.spec.name = name;
    const Config defaults;
    key.spec.default_value = key.get(defaults);
    key.spec.help = help;
    key.requires_integers = std::is_same_v<T, std::vector<int64_t>>;
    keys_.push_back(std::move(key));
    return keys_.back();
  }

 private:
  std::vector<SchemaKey>& keys_;
  std::string table_name_;
  Section Config::*section_;
  std::optional<KeyScope> scope_;
  KeyRole role_ = KeyRole::training;
  bool are_used_by_benchmarks_ = false;
};

// The functions below append the keys of the table [data].
void add_data_keys(std::vector<SchemaKey>& keys);
void add_data_path_keys(std::vector<SchemaKey>& keys);
void add_text_keys(std::vector<SchemaKey>& keys);
void add_speech_keys(std::vector<SchemaKey>& keys);
void add_speech_feature_keys(std::vector<SchemaKey>& keys);

}  // namespace tapeformer
