// The one declaration of every config key. Internal to the config code: users see train/config.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/options.h"
#include "train/config.h"

namespace tapeformer {

// A key is an OptionSpec with its place in the typed struct. Lists of integers are lists of whole doubles in
// an OptionValue; `whole` tells them apart.
struct SchemaKey {
  std::string table;
  OptionSpec spec;
  std::function<OptionValue(const Config&)> get;
  std::function<void(Config&, const OptionValue&)> set;
  bool whole = false;  // list of numbers: integers only
  size_t count = 0;    // list: exact length; 0: any
  std::function<std::string(const OptionValue&)>
      problem;  // optional: what is wrong with a value, "" if nothing

  std::string name() const { return table + "." + spec.name; }

  SchemaKey& range(double min, double max);
  SchemaKey& at_least(double min);
  SchemaKey& below_one();  // 0 <= x < 1
  SchemaKey& one_of(std::vector<std::string> choices);
  SchemaKey& one_of_integers(std::vector<int64_t> choices);
};

// Tables in the order of the resolved file; [attention] has no keys of its own here.
std::vector<std::string> config_tables();

// All keys, grouped by table. `attention_names` are the choices of model.attention; empty: any text.
std::vector<SchemaKey> config_schema(const std::vector<std::string>& attention_names);

}  // namespace tapeformer
