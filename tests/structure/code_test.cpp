#include <doctest/doctest.h>

#include <algorithm>

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
  for (const SchemaKey& key : make_config_schema(make_attention_catalogue())) names.push_back(key.name());
  for (const std::string& kind : make_attention_catalogue().kind_names)
    for (const OptionSpec& option : make_attention_catalogue().list_options(kind))
      names.push_back("attention." + option.name);
  return names;
}

// Prefixes of the paths of files in which the test allows functions with more than 60 lines.
const std::vector<std::string> kLongFunctions = {};

bool is_known(const std::vector<std::string>& files, const std::string& path) {
  return std::any_of(files.begin(), files.end(),
                     [&](const std::string& file) { return path.starts_with(file); });
}

std::string function_of_lines(int lines) {
  std::string text = "int f(int x) {\n";
  for (int i = 2; i < lines; ++i) text += "  ++x;\n";
  return text + "}\n";
}

std::string names_of(const std::string& code) {
  std::string text;
  for (const FunctionBody& function : functions_of(code))
    text += function.name + " " + std::to_string(function.line) + " " + std::to_string(function.lines) + "\n";
  return text;
}

std::string key_text(const std::string& code) {
  return joined(key_problems({"core/x.cpp", code + "\n"}, {"data.limit", "run.seed"}));
}

}  // namespace

TEST_CASE("no function has more than 60 lines") {
  std::string problems;
  for (const SourceFile& file : tree())
    if (!is_known(kLongFunctions, file.path)) problems += joined(function_problems(file));
  CHECK(problems == "");
}

TEST_CASE("control: functions are found with their lengths") {
  CHECK(function_problems({"core/x.cpp", function_of_lines(60)}).empty());
  CHECK(joined(function_problems({"core/x.cpp", function_of_lines(61)})) ==
        "core/x.cpp:1: f has 61 lines, more than 60\n");
  CHECK(function_problems({"core/x.py", function_of_lines(61)}).empty());
  CHECK(names_of("namespace a {\nstruct B : C {\n  int x = f({1});\n  B(int y)\n      : x_(y),\n        "
                 "z_{.a = y} {\n"
                 "    g();\n  }\n  void h() const override { if (x) { y(); } }\n};\n}\n") ==
        "B 4 5\nh 9 1\n");
  CHECK(names_of("template <class T>\n__global__ void k(T* x)\n{\n}\n") == "k 1 4\n");
  CHECK(
      names_of("const auto f = [](int x) {\n  return x;\n};\nint y[] = {1, 2};\nstruct stat s(int) {\n}\n") ==
      " 1 3\ns 5 2\n");
  CHECK(names_of("#define F(x) {\\\n x\nTEST_CASE(\"a { b\") {  // }\n  f('{', R\"(})\", 1'000);\n}\n") ==
        "TEST_CASE 3 3\n");
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
  CHECK(key_text("\n\nf(R\"(use --seed)\");") ==
        "core/x.cpp:3: \"use --seed\" names an option of the command line\n");
  CHECK(key_text(
            "// data.limit\nf(\"data.limits\", \"my.data.limit\", \"--sep=_\", \"a -- b\", x.data.limit);") ==
        "");
  CHECK(key_text("#include \"run.seed\"") == "");
}
