// Values in the file of a table: placeholders, choices by scale, and options.
//
// In a text, "{name}" stands for the value of a variable, and "{tokens / length}" for
// the result of operations, which are carried out from the left: * / div min max. `div` rounds down.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

using Json = nlohmann::ordered_json;
// Returns the value of a variable, or std::nullopt if there is none with this name.
using Lookup = std::function<std::optional<Json>(const std::string& name)>;

// Returns a lookup in the entries of `object` and then in `outer`.
Lookup make_lookup(Json object, Lookup outer = nullptr);

// Returns the text with the values of placeholders. Placeholders with unknown variables stay. Throws
// ConfigError if an operand is no number, or if variables refer to each other in a cycle.
std::string fill_text(const std::string& text, const Lookup& lookup);
std::vector<std::string> fill_texts(std::vector<std::string> texts, const Lookup& lookup);
// Fills all texts in `value`. A text that is a single placeholder becomes the value of the variable.
Json fill_json(const Json& value, const Lookup& lookup);

// Returns the names of the scales: smoke, small, paper.
const std::vector<std::string>& list_table_scales();
// Returns `value` at a scale. An object whose keys are scales or "else" becomes the value of the scale. If it
// has none, its entry is left out. In a list, a list that was chosen in this way becomes several elements.
Json select_scale(const Json& value, const std::string& scale);

// Returns the value of an option. `where` names the object in the ConfigError for an invalid value.
OptionValue read_option_value(const OptionSpec& spec, const Json& value, const std::string& where);
// Returns the values of options in `object`. Throws ConfigError for an unknown key and for an invalid value.
OptionValues read_option_values(const std::vector<OptionSpec>& specs, const Json& object,
                                const std::string& where);

class KeyReader {
 public:
  KeyReader(const Json& object, const std::string& where, std::vector<std::string> known_keys);
  template <class T, class... Pairs>
  void read(const char* key, T& to, Pairs&&... pairs) {
    known_keys_.push_back(key);
    if (const auto found = object_.find(key); found != object_.end())
      to = std::get<T>(read_option_value({.name = key, .default_value = to, .help = ""}, *found, where_));
    if constexpr (sizeof...(pairs) > 0) read(pairs...);
  }
  void check_unknown_keys() const;

 private:
  const Json& object_;
  const std::string& where_;
  std::vector<std::string> known_keys_;
};

// Reads the values of an object into variables: read_keys(object, where, others, "name", name, "count",
// count). Variables of missing keys keep their values. Throws ConfigError for a key that is neither read nor
// in `others`.
template <class... Pairs>
void read_keys(const Json& object, const std::string& where, std::vector<std::string> others,
               Pairs&&... pairs) {
  KeyReader reader(object, where, std::move(others));
  reader.read(pairs...);
  reader.check_unknown_keys();
}

}  // namespace tapeformer
