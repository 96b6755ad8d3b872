// Tests of manual pages, of the completion of command lines, and of configs that are found by name.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/train/cli/program.h"
#include "train/cli/commands.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

bool has_program(const std::string& name) {
  return run_words({"sh", "-c", "command -v " + name}).code == 0;
}

// Returns what bash completes at the end of `line`, as its completion function is called by readline.
std::vector<std::string> complete_in_bash(const std::string& line) {
  const auto result =
      run_words({"bash", "-c",
                 "source <(" PROGRAM " completion bash); COMP_LINE=$1 COMP_POINT=${#1}; _tapeformer " PROGRAM
                 " && printf '%s\\n' \"${COMPREPLY[@]}\"",
                 "bash", line});
  CHECK(result.code == 0);
  CHECK(result.err == "");
  std::istringstream lines(result.out);
  std::vector<std::string> words;
  for (std::string word; std::getline(lines, word);)
    if (!word.empty()) words.push_back(word);
  return words;
}

bool has_word(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE("bash completes commands, options, choices, config keys and their values") {
  using Words = std::vector<std::string>;
  const std::vector<std::pair<std::string, Words>> cases = {
      {"tapeformer tr", {"train", "transcribe", "translate"}},
      {"tapeformer help tra", {"train", "transcribe", "translate"}},
      {"tapeformer train --re", {"--resume"}},
      {"tapeformer train a.toml --re", {"--resume"}},
      {"tapeformer info --se", {"--seed"}},
      {"tapeformer reproduce copy-convergence --scale ", {"paper", "small", "smoke"}},
      {"tapeformer reproduce --scale=sm", {"small", "smoke"}},
      {"tapeformer train --set optimizer.ki", {"optimizer.kind="}},
      {"tapeformer train --set model.attention=soft", {"softmax"}},
      {"tapeformer train --set=run.precision=", {"bfloat16", "float32"}},
      {"tapeformer train --set run.tf32=", {"false", "true"}},
      {"tapeformer train --set attention.lsh.ro", {"attention.lsh.rounds="}},
      {"tapeformer train quickstart-te", {"quickstart-text"}},
      {"tapeformer test-attention linear so", {"softmax"}},
      {"tapeformer data ver", {"verify"}},
      {"tapeformer data verify --layout ka", {"kaldi"}},
      {"tapeformer data fetch fashion", {"fashion-mnist"}},
      {"tapeformer data fetch an", {}},
      {"tapeformer data verify an", {"an4"}},
      {"tapeformer data prepare k", {"kaldi"}},
      {"tapeformer data prepare mnist k", {}},
      {"tapeformer bench small", {"small-op"}},
      {"tapeformer bench small-op --rep", {"--repeats"}},
      {"tapeformer bench nonsense --rep", {}},
      {"tapeformer completion ", {"bash", "zsh"}},
      {"tapeformer nonsense ", {}},
      {"tapeformer train --run-dir ", {}},
  };
  for (const auto& [line, expected] : cases) {
    CAPTURE(line);
    CHECK(complete_in_bash(line) == expected);
  }
  CHECK(has_word(complete_in_bash("tapeformer "), "completion"));
  CHECK(has_word(complete_in_bash("tapeformer train "), "copy/linear"));
  CHECK(has_word(complete_in_bash("tapeformer train --set model.attention="), "lsh"));
  CHECK(!has_word(complete_in_bash("tapeformer info --"), "--set"));
}

TEST_CASE("data takes every data set that a shell completes after its actions") {
  const TempDir dir;
  const std::string nowhere = (dir / "nowhere").string();
  for (const std::string action : {"list", "verify", "fetch", "prepare"}) {
    const auto names = complete_in_bash("tapeformer data " + action + " ");
    CHECK(names.size() > 3);
    for (const std::string& name : names) {
      if (action == "prepare" && name == "synthetic-speech") continue;  // generates a corpus
      std::vector<std::string> words = {"data", action, name, "--data-dir", (dir / "data").string()};
      if (action == "fetch") words.insert(words.end(), {"--from", nowhere});
      const auto result = run_program(words);
      CAPTURE(action);
      CAPTURE(name);
      CAPTURE(result.err);
      CHECK(!contains(result.err, "is not a"));
      CHECK(!contains(result.err, "unknown data set"));
    }
  }
}

TEST_CASE("the completion of zsh is valid") {
  if (!has_program("zsh")) {
    MESSAGE("not run: zsh is not installed");
    return;
  }
  const auto result =
      run_words({"zsh", "-fc", "compdef() :; source =(" PROGRAM " completion zsh) && whence -w _tapeformer"});
  CHECK(result.out == "_tapeformer: function\n");
  const auto wrong = run_program({"completion", "fish"});
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "unknown shell \"fish\""));
}

TEST_CASE("every command has a manual page without faults") {
  const TempDir dir;
  const bool can_check = has_program("man") && has_program("groff");
  if (!can_check) MESSAGE("the pages are not checked: man or groff is not installed");
  std::vector<std::vector<std::string>> pages = {{}};
  for (const Command& command : list_commands()) pages.push_back({command.name});
  for (std::vector<std::string> words : pages) {
    const std::string name = words.empty() ? "tapeformer" : "tapeformer-" + words.front();
    CAPTURE(name);
    words.insert(words.begin(), {"help", "--man"});
    const auto page = run_program(words);
    CHECK(page.code == 0);
    CHECK(contains(page.out, "\n.SH SYNOPSIS\n"));
    if (!can_check) continue;
    const std::string path = (dir / (name + ".1")).string();
    std::ofstream(path) << page.out;
    const auto shown = run_words({"env", "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80", "man", "--warnings",
                                  "-E", "UTF-8", "-l", "-Tutf8", path});
    CHECK(shown.code == 0);
    CHECK(shown.err == "");
    CHECK(contains(shown.out, name));
  }
  const auto train = run_program({"help", "--man", "train"});
  CHECK(contains(train.out, "\n\\fB\\-\\-resume\\fR\n"));
  CHECK(contains(train.out, "[optimizer]"));
  CHECK(run_program({"help", "--man", "nonsense"}).code == 2);
  CHECK(run_program({"help", "--man", "train", "eval"}).code == 2);
}

TEST_CASE("train finds configs of the program by name") {
  const auto known = run_program({"train", "copy/linear", "--dry-run", "--threads", "1", "--json", "--set",
                                  "model.layers=1", "--set", "data.eval_limit=1"});
  CHECK(known.code == 0);
  CHECK(contains(known.out, "\"parameters\""));
  const auto unknown = run_program({"train", "no-such-config", "--dry-run"});
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "no-such-config"));
}

TEST_CASE("info names missing libraries and programs") {
  const auto info = parse_json_output(run_program({"info", "--json"}));
  CHECK(info.at("built_without").is_array());
  const auto bare = run_words({"env", "PATH=/nonexistent", PROGRAM, "info", "--json"});
  CHECK(parse_json_output(bare).at("missing_programs") == nlohmann::json({"espeak-ng", "rsvg-convert"}));
}
