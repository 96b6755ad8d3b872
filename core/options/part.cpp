#include "core/options/part.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

bool accepts(const OptionSpec&, bool) {
  return true;
}
bool accepts(const OptionSpec& option, double x) {
  return x >= option.min && x <= option.max;
}
bool accepts(const OptionSpec& option, int64_t x) {
  return accepts(option, static_cast<double>(x));
}
bool accepts(const OptionSpec& option, const std::string& text) {
  return option.choices.empty() ||
         std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end();
}
template <class T>
bool accepts(const OptionSpec& option, const std::vector<T>& list) {
  return std::all_of(list.begin(), list.end(), [&](const T& element) { return accepts(option, element); });
}

bool accepts_default(const OptionSpec& option) {
  return std::visit([&](const auto& value) { return accepts(option, value); }, option.default_value);
}

}  // namespace

void check_part_kind(const std::string& noun, const std::string& name,
                     const std::vector<OptionSpec>& options) {
  const auto require = [&](bool condition, const std::string& problem) {
    if (!condition) throw std::invalid_argument(noun + " \"" + name + "\": " + problem);
  };
  require(!name.empty(), "the name is empty");
  std::set<std::string> names;
  for (const OptionSpec& option : options) {
    require(!option.name.empty(), "an option has no name");
    require(names.insert(option.name).second, "two options are named \"" + option.name + "\"");
    require(accepts_default(option), "the default value of option \"" + option.name + "\" is not valid");
  }
  for (const OptionSpec& option : options)
    require(option.used_if.option.empty() || names.contains(option.used_if.option),
            "`used_if` of option \"" + option.name + "\" names no option");
}

void throw_unknown_kind(const std::string& noun, const std::string& name,
                        const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
  const std::string nearest = find_nearest_name(name, names);
  throw ConfigError("unknown " + noun + " \"" + name + "\" (known: " + list + ")" +
                    (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

}  // namespace tapeformer
