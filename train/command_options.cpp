#include "train/command_options.h"

#include <algorithm>
#include <charconv>

#include "core/base/errors.h"

namespace tapeformer {

void ConfigOverrides::apply(Config& config) const {
  if (threads > 0) config.run.threads = threads;
  if (seed) config.run.seed = *seed;
}

OptionSpec make_allow_commands_option() {
  return {.name = "allow-commands",
          .default_value = false,
          .help = "run the shell commands in wav.scp of Kaldi directories; by default they are refused"};
}

std::vector<int64_t> parse_index_list(const std::string& option_name, const std::string& text) {
  std::vector<int64_t> list;
  for (size_t first = 0; first <= text.size();) {
    const size_t comma = std::min(text.find(',', first), text.size());
    const char* const end = text.data() + comma;
    int64_t index = -1;
    const auto result = std::from_chars(text.data() + first, end, index);
    if (result.ec != std::errc{} || result.ptr != end || index < 0)
      throw ConfigError(concat_text("--", option_name, ": expected numbers ",
                                    result.ec == std::errc::result_out_of_range
                                        ? concat_text("from 0 to ", INT64_MAX)
                                        : "of at least 0",
                                    " separated by commas, got \"", text, "\""));
    list.push_back(index);
    first = comma + 1;
  }
  return list;
}

std::string describe_unknown_word(const std::string& kind_name, const std::string& word,
                                  const std::vector<std::string>& known_names) {
  const std::string near = find_nearest_name(word, known_names);
  std::string text = "unknown " + kind_name + " \"" + word + "\"";
  if (!near.empty()) return text + "; did you mean \"" + near + "\"?";
  for (size_t i = 0; i < known_names.size(); ++i) text += (i ? ", " : "; there are ") + known_names[i];
  return text;
}

}  // namespace tapeformer
