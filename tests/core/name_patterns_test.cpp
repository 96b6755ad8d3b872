#include "core/options/name_patterns.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"

using namespace tapeformer;

TEST_CASE("* in a pattern stands for any characters, ? for one, and a pattern matches complete names") {
  const std::string name = "layers.10.attention.query_projection.weight";
  for (const char* pattern : {"*", "layers.*", "*.weight", "layers.*.attention.*_projection.weight",
                              "layers.??.attention.query_projection.weight", "**weight**",
                              "layers.10.attention.query_projection.weight"})
    CHECK_MESSAGE(NamePatterns("key", {pattern}).matches(name), pattern);
  for (const char* pattern : {"", "layers", "weight", "*.bias", "layers.?.*", "layers.*.attention",
                              "layers.10.attention.query_projection.weight?", "Layers.*"})
    CHECK_MESSAGE(!NamePatterns("key", {pattern}).matches(name), pattern);
  CHECK(NamePatterns("key", {"a", "*.weight"}).matches(name));
  CHECK_FALSE(NamePatterns("key", {}).matches(name));
  CHECK(NamePatterns("key", {""}).matches(""));
  CHECK(count_pattern_edits("layers.*.atention.*", name) == 1);
  CHECK(count_pattern_edits("abc", "") == 3);
  CHECK(count_pattern_edits("*a?c*", "xxabd") == 1);
}

TEST_CASE("a pattern with ! takes names back, and of the patterns that match a name the last counts") {
  const NamePatterns patterns("key", {"*", "!*.attention.*", "*.bias"});
  CHECK(patterns.matches("norm.weight"));
  CHECK_FALSE(patterns.matches("layers.0.attention.out_projection.weight"));
  CHECK(patterns.matches("layers.0.attention.out_projection.bias"));
  CHECK_FALSE(NamePatterns("key", {"!*.bias"}).matches("norm.weight"));
  CHECK_THROWS_WITH_AS(NamePatterns("key", {"*", "!norm.wait"}).require_matches({"norm.weight"}, "tensor"),
                       "key: \"norm.wait\" matches no tensor; the nearest names are norm.weight",
                       ConfigError);
}

TEST_CASE("a pattern that matches nothing is an error with the nearest names") {
  const std::vector<std::string> names = {"norm.weight", "layers.0.linear1.weight", "layers.0.linear2.weight",
                                          "predictor.bias"};
  const NamePatterns good("train.freeze", {"norm.*", "layers.*"});
  CHECK_NOTHROW(good.require_matches(names, "tensor of the model"));
  const NamePatterns bad("train.freeze", {"norm.*", "layer.*.linear*.weight"});
  CHECK_THROWS_WITH_AS(bad.require_matches(names, "tensor of the model"),
                       "train.freeze: \"layer.*.linear*.weight\" matches no tensor of the model; the nearest "
                       "names are layers.0.linear1.weight, layers.0.linear2.weight, norm.weight",
                       ConfigError);
  CHECK_THROWS_WITH_AS(bad.require_matches({}, "unused tensor"),
                       "train.freeze: \"norm.*\" matches no unused tensor", ConfigError);
}
