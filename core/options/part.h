// Kinds of the parts of a run: attention kinds, data sets, models, optimizers and schedules. A kind has a
// name and options of its own. Configs, help texts and error messages list the kinds of the registries, so
// programs that link the library can add kinds.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

struct PartKind {
  std::string name;
  std::string help = {};  // a one-line description
  std::vector<OptionSpec> options = {};
};

// Throws std::invalid_argument, with `noun` in the message, if the name of a kind is empty, or if an option
// has no name, a duplicate name, an invalid default or a `used_if` that names no option.
void check_part_kind(const std::string& noun, const std::string& name,
                     const std::vector<OptionSpec>& options);

// Throws ConfigError with the known names; suggests the nearest one.
[[noreturn]] void throw_unknown_kind(const std::string& noun, const std::string& name,
                                     const std::vector<std::string>& names);

// The kinds of one part of a run. Not thread-safe: programs register their kinds before they read configs.
template <class Kind>
class Registry {
 public:
  // `noun` names the kinds in messages, for example "optimizer".
  Registry(std::string noun, std::deque<Kind> kinds) : noun_(std::move(noun)), kinds_(std::move(kinds)) {}

  // Throws std::invalid_argument for an invalid or known kind; see check_part_kind().
  void add(Kind kind) {
    check_part_kind(noun_, kind.name, kind.options);
    for (const Kind& known : kinds_)
      if (known.name == kind.name)
        throw std::invalid_argument(noun_ + " \"" + kind.name + "\": the name is already registered");
    kinds_.push_back(std::move(kind));
  }
  // In the order of registration, the built-in kinds first. References stay valid.
  const std::deque<Kind>& list() const { return kinds_; }
  // Throws ConfigError for an unknown name; the message suggests the nearest known name.
  const Kind& find(const std::string& name) const {
    std::vector<std::string> names;
    for (const Kind& known : kinds_) {
      if (known.name == name) return known;
      names.push_back(known.name);
    }
    throw_unknown_kind(noun_, name, names);
  }

 private:
  std::string noun_;
  std::deque<Kind> kinds_;
};

}  // namespace tapeformer
