// Access to environment variables. The functions are thread-safe if no thread changes the variables.
#pragma once

#include <optional>

namespace tapeformer {

// Returns the value of an environment variable, or null if the variable is not set or is empty.
const char* get_environment_variable(const char* name);

// Returns false if the value of the variable is 0, and true for any other value. Returns std::nullopt if the
// variable is not set or is empty.
std::optional<bool> get_environment_flag(const char* name);

}  // namespace tapeformer
