#include "train/reproduce/values.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"

using namespace tapeformer;

TEST_CASE("placeholders are values of variables, and results of operations from left to right") {
  const Lookup lookup = make_lookup({{"tokens", 783},
                                     {"patience", 20.0},
                                     {"name", "lsh"},
                                     {"list", {1, 8}},
                                     {"half", "{tokens div 2}"},
                                     {"loop", "{loop}"}});
  CHECK(fill_text("{name}-{tokens}, {patience} s", lookup) == "lsh-783, 20 s");
  CHECK(fill_text("{tokens min 100}", lookup) == "100");
  CHECK(fill_text("{tokens div 16 max 64 * 2}", lookup) == "128");
  CHECK(fill_text("{half}", lookup) == "391");
  CHECK(fill_text("{unknown} {tokens / unknown} {", lookup) == "{unknown} {tokens / unknown} {");
  CHECK(fill_json("{tokens / 1000}", lookup) == 0.783);
  CHECK(fill_json("{list}", lookup) == Json({1, 8}));
  CHECK(fill_json({{"count", "{tokens}"}}, lookup) == Json({{"count", 783}}));
  CHECK_THROWS_WITH_AS(fill_text("{name * 2}", lookup), "{name * 2}: an operand is no number", ConfigError);
  CHECK_THROWS_WITH_AS(fill_text("{tokens plus 2}", lookup), doctest::Contains("\"plus\""), ConfigError);
  CHECK_THROWS_WITH_AS(fill_text("{loop}", lookup), "the variable \"loop\" refers to itself", ConfigError);
}

TEST_CASE("an object with the names of scales is the value of the scale") {
  const Json json = Json::parse(R"({"a": {"smoke": 1, "else": 2}, "b": {"paper": 3},
                                    "list": ["x", {"smoke": ["y", "z"]}, {"small": "s"}, ["w"]]})");
  CHECK(select_scale(json, "smoke") == Json::parse(R"({"a": 1, "list": ["x", "y", "z", ["w"]]})"));
  CHECK(select_scale(json, "small") == Json::parse(R"({"a": 2, "list": ["x", "s", ["w"]]})"));
  CHECK(select_scale(json, "paper") == Json::parse(R"({"a": 2, "b": 3, "list": ["x", ["w"]]})"));
}
