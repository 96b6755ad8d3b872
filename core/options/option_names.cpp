#include "core/options/option_names.h"

#include <utility>

namespace tapeformer {
namespace {

std::map<std::string, std::string>& get_names() {
  static auto* const names = new std::map<std::string, std::string>;  // usable during the exit of the program
  return *names;
}

}  // namespace

std::string name_option(const std::string& member) {
  const auto found = get_names().find(member);
  return found == get_names().end() ? member : found->second;
}

void set_option_names(std::map<std::string, std::string> names) {
  get_names() = std::move(names);
}

}  // namespace tapeformer
