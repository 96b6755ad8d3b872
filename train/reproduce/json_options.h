// Options in JSON objects, with errors that name the object and the key.
#pragma once

#include "core/options/options.h"
#include "train/reproduce/variables.h"

namespace tapeformer {

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
