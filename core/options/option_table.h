// A list of options whose values are the members of a struct. Each option is declared once: its type and its
// default are those of the member.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

template <class S>
class OptionTable {
 public:
  // Adds an option. The result is valid until the next call.
  template <class T>
  OptionSpec& add(std::string name, T S::*member, std::string help) {
    entries_.push_back({{.name = std::move(name), .default_value = S{}.*member, .help = std::move(help)},
                        [member](const S& from) { return OptionValue(from.*member); },
                        [member](S& to, const OptionValue& value) { to.*member = std::get<T>(value); }});
    return entries_.back().spec;
  }

  // Adds an option whose values are names of the values of the member. One of them must be its default.
  template <class T>
  OptionSpec& add_choice(std::string name, T S::*member, std::vector<std::pair<std::string, T>> choices,
                         std::string help) {
    const auto get = [member, choices](const S& from) -> OptionValue {
      for (const auto& [text, value] : choices)
        if (value == from.*member) return text;
      throw std::invalid_argument("a member has a value without a name");
    };
    const auto set = [member, choices](S& to, const OptionValue& value) {
      for (const auto& [text, choice] : choices)
        if (text == std::get<std::string>(value)) to.*member = choice;
    };
    entries_.push_back(
        {{.name = std::move(name), .default_value = get(S{}), .help = std::move(help)}, get, set});
    for (const auto& [text, value] : choices) entries_.back().spec.choices.push_back(text);
    return entries_.back().spec;
  }

  std::vector<OptionSpec> specs() const {
    std::vector<OptionSpec> list;
    for (const Entry& entry : entries_) list.push_back(entry.spec);
    return list;
  }
  // Returns a struct with the values of the options. Members of options that `values` lacks have their
  // default.
  S read(const OptionValues& values) const {
    S result;
    for (const Entry& entry : entries_) {
      const auto found = values.values_by_name().find(entry.spec.name);
      if (found != values.values_by_name().end()) entry.set(result, found->second);
    }
    return result;
  }

  struct Entry {
    OptionSpec spec;
    std::function<OptionValue(const S&)> get;
    std::function<void(S&, const OptionValue&)> set;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tapeformer
