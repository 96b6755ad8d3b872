// A builder for the declarations of the config keys of one table, such as [train]. Internal to the config
// code.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/config/schema_key.h"

namespace tapeformer {

// The maximum value of keys such as model.layers. The product of three such values fits in int64_t.
inline constexpr double kMaxSize = 1 << 20;

// A builder that appends the keys of one table to a list. The members of the struct `Section` determine the
// types and the defaults of the keys.
template <class Section>
class TableSchemaBuilder {
 public:
  TableSchemaBuilder(std::vector<SchemaKey>& keys, std::string table_name, Section Config::*section)
      : keys_(keys), table_name_(std::move(table_name)), section_(section) {}

  // Sets the conditions (KeyScope) and the use of the keys that are added afterwards.
  void set_scope(KeyScope scope, OptionUse use) {
    scope_ = std::move(scope);
    use_ = use;
  }
  // Adds a key. The result is valid until the next call.
  template <class T>
  OptionSpec& add(const char* name, T Section::*member, const std::string& help) {
    SchemaKey key;
    key.table_name = table_name_;
    key.scope = scope_.value();  // throws if set_scope() was not called
    key.get = [section = section_, member](const Config& config) -> OptionValue {
      return config.*section.*member;
    };
    key.set = [section = section_, member](Config& config, const OptionValue& value) {
      config.*section.*member = std::get<T>(value);
    };
    key.spec = {.name = name, .default_value = key.get(Config()), .help = help, .use = use_};
    keys_.push_back(std::move(key));
    return keys_.back().spec;
  }

 private:
  std::vector<SchemaKey>& keys_;
  std::string table_name_;
  Section Config::*section_;
  std::optional<KeyScope> scope_;
  OptionUse use_ = OptionUse::training;
};

}  // namespace tapeformer
