// Options and messages that the commands share with benchmarks and reproductions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/options/options.h"
#include "train/config/config.h"

namespace tapeformer {

// Values from the command line that override a config.
struct ConfigOverrides {
  std::vector<std::string> config_settings = {};  // values of --set, in the form "table.key=value"
  std::string device = {};                        // overrides run.device, unless empty
  int64_t threads = 0;                            // overrides run.threads, unless 0
  std::optional<int64_t> seed = {};               // overrides run.seed

  // Overrides run.threads unless `threads` is 0, and run.seed if `seed` is set. Does not apply
  // `config_settings` and `device`, which load_config() takes as arguments.
  void apply(Config& config) const;
};

// Returns the option --allow-commands, which permits the shell commands in wav.scp of Kaldi directories.
OptionSpec make_allow_commands_option();

// Parses integers of at least 0 that are separated by commas, such as "0,3,7". Throws ConfigError with the
// name of the option for any other text.
std::vector<int64_t> parse_index_list(const std::string& option_name, const std::string& text);

// Returns the error message for `word`, which is not one of `known_names`. The message is `unknown KIND
// "WORD"; did you mean "NAME"?`, where KIND is `kind_name` and NAME is the most similar known name. If no
// known name is similar, the message lists all known names.
std::string describe_unknown_word(const std::string& kind_name, const std::string& word,
                                  const std::vector<std::string>& known_names);

}  // namespace tapeformer
