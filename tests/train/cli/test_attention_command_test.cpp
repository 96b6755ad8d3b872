// Tests of the command "test-attention".
#include <doctest/doctest.h>

#include "models/attention/attention.h"
#include "tests/train/cli/program.h"
#include "train/cli/commands.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the result of a test in the JSON output of the command.
nlohmann::json find_test(const nlohmann::json& report, const std::string& kind, const std::string& test) {
  for (const nlohmann::json& row : report["tests"])
    if (row["kind"] == kind && row["test"] == test) return row;
  return {};
}

std::string find_usage_error(const std::vector<std::string>& words) {
  std::vector<std::string> command = {"test-attention"};
  command.insert(command.end(), words.begin(), words.end());
  const ProgramResult result = run_program(command);
  CHECK(result.code == 2);
  CHECK(result.out == "");
  return result.err;
}

}  // namespace

TEST_CASE("test-attention prints the result of each test, and the reason if a test does not run") {
  const ProgramResult result =
      run_program({"test-attention", "local", "linformer", "--json", "--threads", "1"});
  CHECK(result.code == 0);
  const nlohmann::json report = parse_json_output(result);
  CHECK(report["failures"] == 0);
  CHECK(find_test(report, "local", "gradients")["result"] == "passed");
  CHECK(find_test(report, "local", "state")["result"] == "passed");
  CHECK(find_test(report, "linformer", "causal mask")["result"] == "not run");
  CHECK(find_test(report, "linformer", "causal mask")["reason"] ==
        find_attention_kind("linformer").capabilities.causal.reason());
}

TEST_CASE("test-attention takes options of the kind, the length, the heads and their width") {
  CHECK(run_program({"test-attention", "local", "--set", "attention.form=blocks", "--length", "12"}).code ==
        0);
  CHECK(run_program({"test-attention", "linformer", "--set", "attention.linformer.rank=4"}).code == 0);
  CHECK(run_program({"test-attention", "image", "--set", "attention.form=2d", "--set",
                     "attention.image_width=3", "--set", "attention.block_columns=1", "--set",
                     "attention.memory_columns=1", "--heads", "3", "--head-dim", "5"})
            .code == 0);
}

TEST_CASE("test-attention ends with exit status 1 if a test fails") {
  AttentionKind kind = find_attention_kind("softmax");
  kind.name = "test-constant-state";
  kind.capabilities.has_constant_size_state = true;  // not true of a key-value cache
  register_attention_kind(kind);
  const CommandSpec spec = make_command_spec(find_command("test-attention"));
  CHECK(run_test_attention(*parse_command(spec, {"softmax", "--json"})) == 0);
  CHECK(run_test_attention(*parse_command(spec, {kind.name, "--json"})) == 1);
}

TEST_CASE("test-attention refuses unknown kinds, other keys, and sizes out of range") {
  CHECK(contains(find_usage_error({"liner"}), "did you mean \"linear\"?"));
  CHECK(contains(find_usage_error({"linear", "--set", "model.heads=3"}),
                 "--set model.heads: \"test-attention\" takes only options of the kind"));
  CHECK(
      contains(find_usage_error({"local", "--set", "attention.windw=3"}), "did you mean attention.window?"));
  CHECK(contains(find_usage_error({"--set", "attention.window=3"}), "--set requires a KIND argument"));
  CHECK(contains(find_usage_error({"linear", "--length", "3"}), "--length: expected an integer from 4"));
  CHECK(contains(find_usage_error({"linformer", "--set", "attention.rank=12"}),
                 "attention.rank: expected at most the maximum length of the sequences, 9, got 12"));
}
