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
  // `use` is the use of options that OptionSpec::use_for() does not change.
  explicit OptionTable(OptionUse use = OptionUse::training) : use_(use) {}

  // Adds an option. The result is valid until the next call.
  template <class T>
  OptionSpec& add(std::string name, T S::*member, std::string help) {
    return add_setter(
        {.name = std::move(name), .default_value = S{}.*member, .help = std::move(help), .use = use_},
        [member](S& to, const OptionValue& value) { to.*member = std::get<T>(value); });
  }

  // Adds an option whose values are names of the values of the member. One of them must be its default.
  template <class T>
  OptionSpec& add_choice(std::string name, T S::*member, std::vector<std::pair<std::string, T>> choices,
                         std::string help) {
    OptionSpec spec{
        .name = std::move(name), .default_value = std::string(), .help = std::move(help), .use = use_};
    for (const auto& [text, value] : choices) {
      spec.choices.push_back(text);
      if (value == S{}.*member) spec.default_value = text;
    }
    if (std::get<std::string>(spec.default_value).empty())
      throw std::invalid_argument("the default of option \"" + spec.name + "\" has no name");
    return add_setter(std::move(spec), [member, choices](S& to, const OptionValue& value) {
      for (const auto& [text, choice] : choices)
        if (text == std::get<std::string>(value)) to.*member = choice;
    });
  }
  // Adds an option whose value `set` stores.
  OptionSpec& add_setter(OptionSpec spec, std::function<void(S&, const OptionValue&)> set) {
    entries_.push_back({std::move(spec), std::move(set)});
    return entries_.back().spec;
  }
  // Adds the options of a member that is a struct with a table of its own.
  template <class T>
  void include(T S::*member, const OptionTable<T>& table) {
    for (const auto& [spec, set_member] : table.entries())
      add_setter(spec,
                 [member, set = set_member](S& to, const OptionValue& value) { set(to.*member, value); });
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
    std::function<void(S&, const OptionValue&)> set;
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  OptionUse use_;
  std::vector<Entry> entries_;
};

}  // namespace tapeformer
