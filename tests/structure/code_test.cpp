#include <doctest/doctest.h>

#include "tests/structure/code_rules.h"
#include "tests/structure/tree.h"
#include "train/build.h"
#include "train/config/schema.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the names of all config keys, including the options of the attention kinds.
std::vector<std::string> config_keys() {
  std::vector<std::string> names;
  for (const SchemaKey& key : make_config_schema()) names.push_back(key.name());
  for (const AttentionKind& kind : list_attention_kinds())
    for (const OptionSpec& option : kind.options) names.push_back("attention." + option.name);
  return names;
}

std::string function_of_lines(int lines) {
  std::string text = "int f(int x) {\n";
  for (int i = 2; i < lines; ++i) text += "  ++x;\n";
  return text + "}\n";
}

std::string key_text(const std::string& code) {
  return joined(key_problems({"core/x.cpp", code + "\n"}, {"data.limit", "run.seed"}));
}

}  // namespace

TEST_CASE("no function has more than 60 lines") {
  std::string problems;
  for (const SourceFile& file : tree()) problems += joined(function_problems(file));
  CHECK(problems == "");
}

TEST_CASE("control: long functions are found") {
  const std::string found = "core/x.cpp:1: a function has 61 lines, more than 60\n";
  const auto problems = [](const std::string& code) {
    return joined(function_problems({"core/x.cpp", code}));
  };
  CHECK(problems(function_of_lines(60)) == "");
  CHECK(problems(function_of_lines(61)) == found);
  CHECK(function_problems({"core/x.py", function_of_lines(61)}).empty());
  const std::string body = function_of_lines(61).substr(std::string("int f(int x) {\n").size());
  for (const std::string head :
       {"const auto f = [](int x) {", "struct stat s(int) {", "A::A(int x) : x_({x}) {",
        "int g() const override {", "TEST_CASE(\"{ b\") {"})
    CHECK(problems(head + "\n" + body) == found);
  for (const std::string head : {"struct A : B {", "namespace a {", "int y[] = {"})
    CHECK(problems(head + "\n" + body) == "");
  CHECK(problems("struct A {\n  int x;\n  void f(int x,\n         int y) {\n" + std::string(59, '\n') +
                 "  }\n};\n") == "core/x.cpp:3: a function has 62 lines, more than 60\n");
}

TEST_CASE("texts of the libraries name no config key and no option") {
  const std::vector<std::string> keys = config_keys();
  REQUIRE(keys.size() > 80);
  std::string problems;
  for (const SourceFile& file : tree()) {
    const bool below_train = !file.path.starts_with("train/") && !file.path.starts_with("tests/");
    if (below_train) problems += joined(key_problems(file, keys));
  }
  CHECK(problems == "");
}

TEST_CASE("parts of train below the commands name no option") {
  std::string problems;
  for (const SourceFile& file : tree())
    for (const std::string folder : {"train/checkpoint/", "train/loop/", "train/tasks/"})
      if (file.path.starts_with(folder)) problems += joined(key_problems(file, {}));
  CHECK(problems == "");
}

TEST_CASE("control: config keys and options in texts are found") {
  CHECK(key_text("f(\"lower data.limit\");") ==
        "core/x.cpp:1: \"lower data.limit\" names the config key data.limit\n");
  CHECK(key_text("\n\nf(\"(use --seed)\");") ==
        "core/x.cpp:3: \"(use --seed)\" names an option of the command line\n");
  CHECK(key_text(
            "// data.limit\nf(\"data.limits\", \"my.data.limit\", \"--sep=_\", \"a -- b\", x.data.limit);") ==
        "");
  CHECK(key_text("#include \"run.seed\"") == "");
}
