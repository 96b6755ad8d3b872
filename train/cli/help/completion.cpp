// The command "tapeformer completion": the scripts by which shells complete command lines, and the words that
// these scripts ask for.
#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "train/cli/commands.h"
#include "train/config/config.h"

namespace tapeformer {
namespace {

constexpr char kBashScript[] = R"sh(_tapeformer() {
  local line=${COMP_LINE:0:COMP_POINT} words done
  read -ra words <<<"$line."  # the dot keeps an empty last word
  words[-1]=${words[-1]%.}
  mapfile -t COMPREPLY < <("$1" completion words "${words[@]:1}" 2>/dev/null)
  done=${words[-1]%"${words[-1]##*[=:]}"}  # readline replaces only what follows the last = or :
  COMPREPLY=("${COMPREPLY[@]#"$done"}")
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null || :; fi
}
complete -o default -F _tapeformer tapeformer
)sh";

constexpr char kZshScript[] = R"sh(#compdef tapeformer
_tapeformer() {
  local -a found
  found=(${(f)"$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  compadd -S '' -- ${(M)found:#*=}
  compadd -- ${found:#*=}
  (( $#found )) || _files
}
if [[ $funcstack[1] == _tapeformer ]]; then _tapeformer "$@"; else compdef _tapeformer tapeformer; fi
)sh";

const OptionSpec* find_spec(const std::vector<OptionSpec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

// Returns the possible values of an option.
Arguments list_values(const OptionSpec& spec) {
  return is_flag(spec) ? Arguments{"true", "false"} : spec.choices;
}

// Returns the words that continue "table.key=value", the value of --set.
Arguments list_settings(const std::string& setting) {
  Arguments settings;
  const size_t equals = setting.find('=');
  for (const OptionSpec& key : list_config_keys())
    if (equals == std::string::npos)
      settings.push_back(key.name + "=");
    else if (key.name == setting.substr(0, equals))
      for (const std::string& value : list_values(key)) settings.push_back(key.name + "=" + value);
  return settings;
}

// The option whose value is the last word, which begins with `prefix` (--NAME= or nothing).
struct OpenOption {
  const OptionSpec* spec = nullptr;
  std::string prefix = {};
};

OpenOption find_open_option(const std::vector<OptionSpec>& specs, const Arguments& words) {
  const std::string& last = words.back();
  if (const size_t equals = last.find('='); last.starts_with("--") && equals != std::string::npos)
    return {find_spec(specs, last.substr(2, equals - 2)), last.substr(0, equals + 1)};
  const std::string& previous = words[words.size() - 2];
  const OptionSpec* const spec = previous.starts_with("--") ? find_spec(specs, previous.substr(2)) : nullptr;
  return {spec && !is_flag(*spec) ? spec : nullptr};
}

// Returns the words that can stand for the last of `words`, which follow the name of the program.
Arguments list_words(const Arguments& words) {
  Arguments found;
  if (words.size() == 1 || (words.size() == 2 && words.front() == "help")) {
    for (const Command& command : list_commands()) found.push_back(command.name);
    if (words.size() == 1) found.insert(found.end(), {"help", "--help", "--version"});
    return found;
  }
  const CommandSpec command =
      make_command_spec(find_command(words.front()), {words.begin() + 1, words.end() - 1});
  std::vector<OptionSpec> specs = command.options;
  for (OptionSpec& spec : make_common_specs(command))
    if (spec.name != "set" || command.uses_config) specs.push_back(std::move(spec));
  if (const auto [spec, prefix] = find_open_option(specs, words); spec || !prefix.empty()) {
    if (!spec) return {};
    const std::string start = words.back().substr(prefix.size());
    for (const std::string& value : spec->name == "set" ? list_settings(start) : list_values(*spec))
      found.push_back(prefix + value);
  } else if (words.back().starts_with("-")) {
    for (const OptionSpec& known : specs) found.push_back("--" + known.name);
    found.emplace_back("--help");
  } else if (!command.positionals.empty()) {
    size_t position = 0;
    for (size_t i = 1; i + 1 < words.size(); ++i) {
      const Arguments start(words.begin(), words.begin() + static_cast<ptrdiff_t>(i) + 1);
      position += !words[i].starts_with("-") && !find_open_option(specs, start).spec;
    }
    if (position >= command.positionals.size() && !command.positionals.back().is_repeated) return {};
    return command.positionals[std::min(position, command.positionals.size() - 1)].suggestions;
  }
  return found;
}

}  // namespace

CommandSpec make_completion_spec(const Arguments& /*words*/) {
  return {.summary =
              "Prints a script by which a shell completes commands, options, their values and config keys.",
          .positionals = {{.name = "SHELL", .help = "bash or zsh", .suggestions = {"bash", "zsh"}}},
          .details =
              "In bash: source <(tapeformer completion bash)\n"
              "In zsh, after compinit: source <(tapeformer completion zsh)"};
}

int run_completion(const CommandLine& line) {
  const std::string& shell = line.positionals.front();
  if (shell != "bash" && shell != "zsh")
    throw ConfigError(describe_unknown_word("shell", shell, {"bash", "zsh"}));
  print_text(shell == "bash" ? kBashScript : kZshScript);
  return 0;
}

void print_completions(const Arguments& words) {
  std::set<std::string> found;
  try {
    for (const std::string& word : list_words(words))
      if (word.starts_with(words.back())) found.insert(word);
  } catch (const ConfigError&) {  // an unknown command or benchmark continues with no words
  }
  std::string text;
  for (const std::string& word : found) text += word + "\n";
  print_text(text);
}

}  // namespace tapeformer
