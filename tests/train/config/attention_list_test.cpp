// Tests of lists of attention kinds in model.attention, with one table of options per kind.
#include <doctest/doctest.h>

#include "tests/support/temp_dir.h"
#include "tests/train/config/config_fixture.h"

using namespace tapeformer;
using tapeformer::test::contains;

namespace {

const std::string kPattern =
    "[model]\nattention = [\"linear\", \"lsh\", \"linear\"]\n[attention.linear]\neps = 0.5\n"
    "[attention.lsh]\nrounds = 3\n[train]\nsteps = 5\n";

Config load_list(const std::string& path, const std::vector<std::string>& sets = {},
                 const ConfigLoadOptions& options = {}) {
  return load_config(path, sets, options);
}

std::string list_error(const std::string& text, const std::vector<std::string>& sets = {}) {
  const TempFolder folder;
  return find_config_error(folder.write("a.toml", text + "[train]\nsteps = 5\n"), sets);
}

}  // namespace

TEST_CASE("a list of attention kinds has one table per kind, and its resolved config is read back") {
  const TempFolder folder;
  const Config config = load_list(folder.write("a.toml", kPattern), {"attention.lsh.wrap=none"});
  CHECK(config.model.attention == std::vector<std::string>{"linear", "lsh", "linear"});
  CHECK(config.attention.at("linear").get<double>("eps") == 0.5);
  CHECK(config.attention.at("lsh").get<int64_t>("rounds") == 3);
  CHECK(config.attention.at("lsh").get<std::string>("wrap") == "none");
  const std::string text = to_toml(config);
  CHECK(contains(text, "attention = [\"linear\", \"lsh\", \"linear\"]\n"));
  CHECK(contains(text, "\n[attention.linear]\nconv = 0\nconv_activation = \"none\"\neps = 0.5\n"));
  CHECK(contains(text, "rounds = 3\nscale = \"preset\"\nwrap = \"none\"\n"));
  const Config again = load_list(folder.write("b.toml", text));
  CHECK(find_differing_keys(config, again).empty());
  CHECK(to_toml(again) == text);
  CHECK(format_config_value(config, "attention.lsh.rounds") == "3");
  CHECK(explain_unused_key(config, "attention.lsh.rounds").empty());
  CHECK(explain_unused_key(config, "attention.lsh.eps") == "no kind of model.attention has such a key");
}

TEST_CASE("a single attention kind is written as a string, and may have a table with its name") {
  const TempFolder folder;
  const Config config = load_list(folder.write(
      "a.toml", "[model]\nattention = [\"lsh\"]\n[attention.lsh]\nrounds = 3\n[train]\nsteps = 5\n"));
  CHECK(config.attention.at("lsh").get<int64_t>("rounds") == 3);
  const std::string text = to_toml(config);
  CHECK(contains(text, "\nattention = \"lsh\"\n"));
  CHECK(contains(text, "\n[attention]\nacross_buckets = \"preset\"\n"));
}

TEST_CASE("options of a kind are kept if a list contains the kind, and other options are dropped") {
  const TempFolder folder;
  folder.write("base.toml", "[model]\nattention = \"lsh\"\n[attention]\nrounds = 3\n[train]\nsteps = 5\n");
  const auto path =
      folder.write("a.toml", "extends = \"base.toml\"\n[model]\nattention = [\"softmax\", \"lsh\"]\n");
  CHECK(load_list(path).attention.at("lsh").get<int64_t>("rounds") == 3);
  CHECK(load_list(folder.write("b.toml", kPattern), {"model.attention=softmax"}).attention.size() == 1);
  const auto two =
      folder.write("c.toml", "extends = \"b.toml\"\n[model]\nattention = [\"linear\", \"linformer\"]\n");
  CHECK(find_differing_keys(load_list(two), load_list(two, {"model.attention=linformer"})) ==
        std::vector<std::string>{
            "model.attention", "attention.conv", "attention.conv_activation", "attention.linear.conv",
            "attention.linear.conv_activation", "attention.linear.eps", "attention.linear.feature_map",
            "attention.linear.features", "attention.linear.rotation", "attention.linformer.conv",
            "attention.linformer.conv_activation", "attention.linformer.rank", "attention.linformer.sharing",
            "attention.rank", "attention.sharing"});
}

TEST_CASE("errors about lists and tables of attention kinds contain a remedy") {
  CHECK(contains(list_error("[model]\nattention = [\"linear\", \"lhs\"]\n"),
                 "got string \"lhs\" in the list; did you mean \"lsh\"?"));
  CHECK(contains(list_error("[model]\nattention = [\"linear\", 3]\n"), "got integer 3 in the list"));
  CHECK(contains(
      list_error("[model]\nattention = []\n"),
      "model.attention: expected a kind, or a list of 1 to 8 kinds that repeats over the layers, got 0"));
  CHECK(contains(
      list_error("[model]\nlayers = 1\nattention = [\"linear\", \"softmax\"]\n"),
      "model.attention: expected a kind, or a list of 1 to 1 kinds that repeats over the layers, got 2"));
  const std::string pattern = "[model]\nattention = [\"linear\", \"lsh\"]\n";
  CHECK(
      contains(list_error(pattern + "[attention]\nrounds = 2\n"),
               "a.toml:4:1: attention.rounds: model.attention has several kinds: use a table per kind, such "
               "as [attention.lsh]"));
  CHECK(contains(list_error(pattern + "[attention.lhs]\nrounds = 2\n"),
                 "a.toml:4:1: attention.lhs.rounds: model.attention has no kind \"lhs\"; did you mean "
                 "\"lsh\"?"));
  CHECK(contains(list_error(pattern + "[attention.softmax]\nrounds = 2\n"),
                 "attention.softmax.rounds: model.attention has no kind \"softmax\""));
  CHECK(
      contains(list_error(pattern + "[attention.lsh]\nruonds = 2\n"), "did you mean attention.lsh.rounds?"));
  CHECK(contains(list_error(pattern + "[attention.lsh]\nrounds = 0\n"),
                 "attention.lsh.rounds: expected an integer from 1 to 255, got integer 0"));
  CHECK(contains(list_error(pattern, {"attention.lsh.rounds=zero"}),
                 "--set attention.lsh.rounds: expected an integer"));
  CHECK(contains(list_error(pattern + "[attention.lsh.deep]\nrounds = 2\n"), "attention.lsh.deep"));
}

TEST_CASE("an option of an attention kind that is set under two names is an error") {
  CHECK(contains(
      list_error("[model]\nattention = \"lsh\"\n[attention]\nrounds = 2\n[attention.lsh]\nrounds = 3\n"),
      "a.toml:6:1: attention.lsh.rounds: is the same option as attention.rounds, which is also "
      "set; remove one of them"));
  const std::string lsh = "[model]\nattention = \"lsh\"\n";
  CHECK(
      list_error(lsh, {"attention.rounds=2", "attention.lsh.rounds=2"}) ==
      "--set attention.lsh.rounds: is the same option as attention.rounds, which is also set; remove one of "
      "them");
  CHECK(list_error(lsh, {"attention.rounds=2", "attention.rounds=3"}).empty());
  // attention.lsh.rounds and attention.rounds are two names of one option, so the value from --set replaces
  // the value from the file.
  CHECK(list_error(lsh + "[attention]\nrounds = 2\n", {"attention.lsh.rounds=3"}).empty());
}

TEST_CASE("a value for the table of an attention kind is an error that names an option") {
  CHECK(list_error("[model]\nattention = \"lsh\"\n", {"attention.lsh=3"}) ==
        "--set attention.lsh: expected the table of options of the kind, such as attention.lsh.preset, got "
        "integer 3");
  CHECK(contains(
      list_error("[model]\nattention = [\"linear\", \"lsh\"]\n[attention]\nsoftmax = 1\n"),
      "attention.softmax: expected the table of options of the kind, such as attention.softmax.output_gate, "
      "got integer 1"));
}

TEST_CASE("help finds the table and the options of an attention kind") {
  const std::string help = format_config_help("attention.lsh");
  CHECK(help.starts_with(
      "[attention]  # where model.attention = \"lsh\"; in lists: [attention.lsh]\n  preset = "));
  CHECK(!contains(help, "feature_map"));
  CHECK(contains(format_config_help("attention.linear.eps"), "added to the denominator"));
  CHECK(contains(format_config_help("attention.softmax"), "\"softmax\""));
}
