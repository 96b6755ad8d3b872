#include "core/base/environment.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <string>

using namespace tapeformer;

TEST_CASE("an empty environment variable counts as not set, and 0 switches a flag off") {
  constexpr char kName[] = "TAPEFORMER_ENVIRONMENT_TEST";
  unsetenv(kName);
  CHECK(get_environment_variable(kName) == nullptr);
  CHECK(get_environment_flag(kName) == std::nullopt);
  setenv(kName, "", 1);
  CHECK(get_environment_variable(kName) == nullptr);
  CHECK(get_environment_flag(kName) == std::nullopt);
  setenv(kName, "0", 1);
  CHECK(get_environment_variable(kName) == std::string("0"));
  CHECK(get_environment_flag(kName) == false);
  setenv(kName, "1", 1);
  CHECK(get_environment_flag(kName) == true);
  unsetenv(kName);
}
