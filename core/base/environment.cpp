#include "core/base/environment.h"

#include <cstdlib>
#include <string_view>

namespace tapeformer {

const char* get_environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::optional<bool> get_environment_flag(const char* name) {
  const char* const value = get_environment_variable(name);
  if (!value) return std::nullopt;
  return std::string_view(value) != "0";
}

}  // namespace tapeformer
