// The environment of child processes.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

namespace tapeformer::test {

// Returns the environment of this process with `variable` ("NAME=value") instead of the settings of OpenMP.
inline std::vector<std::string> environment_with_openmp(const std::string& variable) {
  std::vector<std::string> environment = {variable};
  for (char** entry = environ; *entry; ++entry)
    if (!std::string_view(*entry).starts_with("OMP_")) environment.emplace_back(*entry);
  return environment;
}

}  // namespace tapeformer::test
