#include <algorithm>

#include "core/base/errors.h"
#include "tests/attention/kind_tests.h"
#include "train/build.h"
#include "train/cli/commands.h"
#include "train/config/config.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

const std::string kAttentionKeyPrefix = "attention.";

// Returns the options with which an attention kind is tested. The --set options override `kind.test_options`.
// An option in `kind.test_options` that has no effect because of a --set option is reset to its default
// value.
OptionValues load_kind_options(const AttentionKind& kind, const std::vector<std::string>& config_settings) {
  const auto is_set = [&](const std::string& name) {
    const std::string key = name + "=";
    return std::any_of(config_settings.begin(), config_settings.end(), [&](const std::string& set) {
      return set.starts_with(kAttentionKeyPrefix + key) ||
             set.starts_with(kAttentionKeyPrefix + kind.name + "." + key);
    });
  };
  std::vector<std::string> sets = {"model.attention=" + kind.name, "train.epochs=1"};
  for (const auto& [name, value] : kind.test_options)
    if (!is_set(name)) sets.push_back(kAttentionKeyPrefix + name + "=" + format_option_value(value));
  for (const std::string& set : config_settings) {
    if (!set.starts_with(kAttentionKeyPrefix))
      throw ConfigError("--set " + set.substr(0, set.find('=')) +
                        ": \"test-attention\" takes only options of the kind, such as attention.NAME=VALUE");
    sets.push_back(set);
  }
  // The tests use the attention kind without a model, so contradictory model options are not errors.
  OptionValues options = load_config("", sets, {.check_model = false}).attention.at(kind.name);
  const OptionValues defaults = kind.default_options();
  for (const UnusedOption& unused : find_unused_options(kind.options, options))
    if (!is_set(unused.name)) options.set(unused.name, defaults.values_by_name().at(unused.name));
  return options;
}

std::string describe_result(const AttentionTestResult& result) {
  if (!result.failure.empty()) return "FAILED";
  return result.skip_reason.empty() ? "passed" : "not run";
}

std::vector<const AttentionKind*> choose_kinds(const CommandLine& line) {
  std::vector<const AttentionKind*> kinds;
  for (const std::string& name : line.positionals) kinds.push_back(&find_attention_kind(name));
  if (!kinds.empty()) return kinds;
  if (!line.common_options.config_settings.empty()) throw ConfigError("--set requires a KIND argument");
  for (const AttentionKind& kind : list_attention_kinds()) kinds.push_back(&kind);
  return kinds;
}

}  // namespace

CommandSpec make_test_attention_spec(const Arguments& /*words*/) {
  std::vector<std::string> kinds;
  for (const AttentionKind& kind : list_attention_kinds()) kinds.push_back(kind.name);
  const auto size = [](const char* name, int64_t value, const char* help, double min, double max) {
    return OptionSpec{.name = name, .default_value = value, .help = help, .min = min, .max = max};
  };
  return {.summary =
              "Tests attention kinds on random sequences: results and gradients, masks, dropout, decoding by "
              "token, and dtypes. The exit status is 1 if a test fails.",
          .positionals = {{.name = "KIND",
                           .help = "attention kinds; none: all kinds",
                           .is_required = false,
                           .is_repeated = true,
                           .suggestions = kinds}},
          .options = {size("length", AttentionTestSetup{}.length, "tokens of a sequence", 4, 4096),
                      size("heads", AttentionTestSetup{}.heads, "heads", 1, 64),
                      size("head-dim", AttentionTestSetup{}.dim, "dimensions of a head", 1, 256)},
          .details =
              "For short sequences, the tests replace some default values of options. --set\n"
              "attention.NAME=VALUE changes an option of the kind. With --device cuda, the results\n"
              "are also compared with the results of the device. With the default, auto, only the\n"
              "CPU is tested.",
          .uses_config = true};
}

int run_test_attention(const CommandLine& line) {
  AttentionTestSetup setup{.length = line.options.get<int64_t>("length"),
                           .heads = line.options.get<int64_t>("heads"),
                           .dim = line.options.get<int64_t>("head-dim")};
  if (line.common_options.device != "auto") setup.device = select_device(line.common_options);
  std::vector<Report> rows;
  int64_t failures = 0;
  for (const AttentionKind* kind : choose_kinds(line)) {
    const OptionValues options = load_kind_options(*kind, line.common_options.config_settings);
    const auto results = translate_option_errors([&] { return run_attention_tests(*kind, options, setup); });
    for (const AttentionTestResult& result : results) {
      failures += !result.failure.empty();
      rows.push_back(Report()
                         .add("kind", kind->name)
                         .add("test", result.name)
                         .add("result", describe_result(result))
                         .add("reason", result.failure.empty() ? result.skip_reason : result.failure));
    }
  }
  print_report(Report().add("failures", failures).add("tests", rows), line.common_options);
  return failures > 0 ? 1 : 0;
}

}  // namespace tapeformer
