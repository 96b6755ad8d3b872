#include "core/options/options.h"

#include <doctest/doctest.h>

#include "core/options/option_table.h"

using namespace tapeformer;

TEST_CASE("find_nearest_name() suggests a similar word, and nothing if no word is similar") {
  const std::vector<std::string> names = {"batch_size", "shuffle", "limit"};
  CHECK(find_nearest_name("bach_size", names) == "batch_size");
  CHECK(find_nearest_name("shufle", names) == "shuffle");
  CHECK(find_nearest_name("zzzzzzz", names).empty());
}

TEST_CASE("find_unused_options() returns options whose condition does not hold") {
  using Names = std::vector<std::string>;
  const std::vector<OptionSpec> specs = {
      {.name = "form", .default_value = std::string("1d"), .help = ""},
      {.name = "terms", .default_value = Names{"dense"}, .help = ""},
      {.name = "blocks", .default_value = int64_t{0}, .help = ""},
      {.name = "rows", .default_value = int64_t{8}, .help = "", .used_if = {"form", {"2d", "3d"}}},
      {.name = "rank", .default_value = int64_t{8}, .help = "", .used_if = {"terms", {"random"}}},
      {.name = "seed", .default_value = int64_t{0}, .help = "", .used_if = {"blocks"}},
      {.name = "live", .default_value = false, .help = ""},
      {.name = "pause", .default_value = int64_t{0}, .help = "", .used_if = {"live"}},
      {.name = "layers", .default_value = int64_t{8}, .help = "", .used_if = {"form", {""}}},
      {.name = "order", .default_value = int64_t{8}, .help = "", .used_if = {"blocks", {"1", "4"}}}};
  OptionValues values(specs);
  CHECK(find_unused_options(specs, values).empty());
  for (const char* name : {"rows", "rank", "seed", "pause", "layers", "order"}) values.set(name, int64_t{9});
  const auto unused = find_unused_options(specs, values);
  REQUIRE(unused.size() == 6);
  CHECK(unused[0].name == "rows");
  CHECK(unused[0].reason == "has an effect only if form = \"2d\" or \"3d\"");
  CHECK(unused[1].reason == "has an effect only if terms contains \"random\"");
  CHECK(unused[2].reason == "has an effect only if blocks > 0");
  CHECK(unused[3].reason == "has an effect only if live is set");
  CHECK(unused[4].reason == "has an effect only if form is empty");
  CHECK(unused[5].reason == "has an effect only if blocks = 1 or 4");
  values.set("layers", int64_t{8});
  values.set("form", std::string("3d"));
  values.set("terms", Names{"dense", "random"});
  values.set("blocks", int64_t{1});
  values.set("live", true);
  CHECK(find_unused_options(specs, values).empty());
}

TEST_CASE(
    "a table includes the options of a member with a table of its own, and reads them into the member") {
  enum class Form { flat, deep };
  struct Inner {
    double rate = 0.5;
    Form form = Form::flat;
  };
  struct Outer {
    Inner inner;
    int64_t count = 3;
  };
  OptionTable<Inner> inner(OptionUse::model);
  inner.add("rate", &Inner::rate, "rate").use_for(OptionUse::training);
  inner.add_choice("form", &Inner::form, {{"flat", Form::flat}, {"deep", Form::deep}}, "form");
  OptionTable<Outer> table;
  table.include(&Outer::inner, inner);
  table.add("count", &Outer::count, "count");
  const std::vector<OptionSpec> specs = table.specs();
  REQUIRE(specs.size() == 3);
  CHECK(specs[0].use == OptionUse::training);
  CHECK(specs[1].use == OptionUse::model);
  CHECK(specs[1].choices == std::vector<std::string>{"flat", "deep"});
  const Outer read = table.read({{"form", "deep"}, {"count", int64_t{4}}});
  CHECK(read.inner.form == Form::deep);
  CHECK(read.inner.rate == 0.5);
  CHECK(read.count == 4);
}
