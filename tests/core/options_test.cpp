#include "core/options.h"

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("nearest_name suggests a similar word, and nothing if no word is similar") {
  const std::vector<std::string> names = {"batch_size", "shuffle", "limit"};
  CHECK(nearest_name("bach_size", names) == "batch_size");
  CHECK(nearest_name("shufle", names) == "shuffle");
  CHECK(nearest_name("zzzzzzz", names).empty());
}
