#include "train/cli/common.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <cxxopts.hpp>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "core/system/printable.h"
#include "core/system/terminal.h"
#include "core/threads/default_threads.h"
#include "core/threads/threads.h"
#include "train/build.h"
#include "train/config/value.h"
#include "train/distributed/processes.h"
#include "train/loop/process_settings.h"
#include "train/signals.h"

namespace tapeformer {
namespace {

std::string format_default(const OptionSpec& spec) {
  if (!spec.default_text.empty()) return spec.default_text;
  if (const auto* number = std::get_if<int64_t>(&spec.default_value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&spec.default_value)) return concat_text(*number);
  if (const auto* text = std::get_if<std::string>(&spec.default_value)) return *text;
  return "";
}

std::string format_choices(const OptionSpec& spec) {
  std::string text;
  for (const std::string& choice : spec.choices) text += (text.empty() ? "" : ", ") + choice;
  return text;
}

void declare(cxxopts::Options& options, const std::string& group, const std::vector<OptionSpec>& specs) {
  for (const OptionSpec& spec : specs) {
    const OptionHelp help = describe_option(spec);
    if (is_flag(spec)) {
      options.add_options(group)(spec.name, help.text, cxxopts::value<bool>());
      continue;
    }
    const auto value = cxxopts::value<std::string>();
    if (!help.fallback.empty()) value->default_value(help.fallback);
    options.add_options(group)(spec.name, help.text, value, help.value);
  }
}

template <class T>
void parse_number(const std::string& text, RawValue& value) {
  T number{};
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error == std::errc{} && end == last) value.value = number;
}

// Converts the text of an option to the type of spec.default_value. Throws ConfigError if the text has the
// wrong type, is out of range or is not one of the choices.
OptionValue parse_option_value(const OptionSpec& spec, const std::string& text) {
  if (text.empty()) throw ConfigError("--" + spec.name + ": the value is empty");
  RawValue raw{text, "\"" + text + "\""};
  if (std::holds_alternative<int64_t>(spec.default_value)) parse_number<int64_t>(text, raw);
  if (std::holds_alternative<double>(spec.default_value)) parse_number<double>(text, raw);
  std::string error;
  const auto value = convert_to_option_value(raw, spec, error);
  if (!value) throw ConfigError("--" + spec.name + ": " + error);
  return *value;
}

OptionValues parse_option_values(const std::vector<OptionSpec>& specs, const cxxopts::ParseResult& parsed) {
  OptionValues values(specs);
  for (const OptionSpec& spec : specs) {
    if (parsed.count(spec.name) == 0) continue;
    if (is_flag(spec)) {
      values.set(spec.name, parsed[spec.name].as<bool>());
    } else if (std::holds_alternative<std::vector<std::string>>(spec.default_value)) {
      // If the type of the option were a vector, cxxopts would split each value at its commas.
      std::vector<std::string> items;
      for (const auto& occurrence : parsed.arguments())
        if (occurrence.key() == spec.name) items.push_back(occurrence.value());
      values.set(spec.name, items);
    } else {
      values.set(spec.name, parse_option_value(spec, parsed[spec.name].as<std::string>()));
    }
  }
  for (const UnusedOption& unused : find_unused_options(specs, values))
    throw ConfigError("--" + unused.name + " " + unused.reason);
  return values;
}

std::string format_help(const CommandSpec& spec, const cxxopts::Options& options) {
  std::string text = options.help(spec.options.empty() ? std::vector<std::string>{"Common"}
                                                       : std::vector<std::string>{spec.name, "Common"});
  if (!spec.details.empty()) text += "\n" + spec.details + "\n";
  return text;
}

std::string description(const CommandSpec& spec) {
  std::string text = spec.summary;
  size_t width = 0;
  for (const PositionalArgument& p : spec.positionals) width = std::max(width, p.name.size());
  for (const PositionalArgument& p : spec.positionals)
    text += (&p == &spec.positionals.front() ? "\n\n  " : "\n  ") + p.name +
            std::string(width - p.name.size() + 2, ' ') + p.help;
  return text + "\n";
}

// Returns the words of `parsed` that are neither options nor values of options. `parsed` does not include the
// words after "--". Throws ConfigError for undeclared options.
std::vector<std::string> list_positional_words(const CommandSpec& spec, const cxxopts::ParseResult& parsed) {
  std::vector<std::string> names = {"help"};
  for (const auto& specs : {spec.options, make_common_specs(spec)})
    for (const OptionSpec& option : specs) names.push_back(option.name);
  for (const std::string& word : parsed.unmatched()) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string name = word.substr(0, word.find('='));
    const size_t letters = std::min(name.find_first_not_of('-'), name.size());
    const std::string near = find_nearest_name(name.substr(letters), names);
    throw ConfigError("unknown option " + (letters < name.size() ? name : word) + " of \"tapeformer " +
                      spec.name + "\"" + (near.empty() ? "" : "; did you mean --" + near + "?"));
  }
  return parsed.unmatched();
}

void check_positionals(const CommandSpec& spec, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size() && !spec.positionals.empty(); ++i)
    if (words[i].empty())
      throw ConfigError("\"tapeformer " + spec.name + "\": " +
                        spec.positionals[std::min(i, spec.positionals.size() - 1)].name + " is empty");
  for (size_t i = words.size(); i < spec.positionals.size(); ++i)
    if (spec.positionals[i].is_required)
      throw ConfigError("\"tapeformer " + spec.name + "\" needs " + spec.positionals[i].name + ": " +
                        spec.positionals[i].help);
  const bool open = !spec.positionals.empty() && spec.positionals.back().is_repeated;
  if (!open && words.size() > spec.positionals.size())
    throw ConfigError("\"tapeformer " + spec.name + "\" does not take the argument \"" +
                      words[spec.positionals.size()] + "\"; usage: tapeformer " + spec.name + " " +
                      format_usage(spec));
}

// Returns the topics after --help or -h, up to the next option.
Arguments find_help_topics(const Arguments& arguments) {
  auto word = std::find_if(arguments.begin(), arguments.end(),
                           [](const std::string& text) { return text == "--help" || text == "-h"; });
  Arguments topics;
  while (word != arguments.end() && ++word != arguments.end() && !word->starts_with("-"))
    topics.push_back(*word);
  return topics;
}

CommonOptions parse_common_options(const CommandSpec& spec, const cxxopts::ParseResult& parsed) {
  const OptionValues values = parse_option_values(make_common_specs(spec), parsed);
  CommonOptions common;
  common.device = values.get<std::string>("device");
  common.is_device_given = parsed.count("device") > 0;
  common.threads = values.get<int64_t>("threads");
  if (parsed.count("seed") > 0) common.seed = values.get<int64_t>("seed");
  common.data_dir = values.get<std::string>("data-dir");
  common.config_settings = values.get<std::vector<std::string>>("set");
  common.json = values.get<bool>("json");
  common.quiet = values.get<bool>("quiet");
  if (!spec.uses_config && !common.config_settings.empty())
    throw ConfigError("\"tapeformer " + spec.name + "\" reads no config and does not take --set");
  return common;
}

// Returns the message of the first flag whose value is neither "true" nor "false", or "" if there is none.
std::string describe_flag_problem(const std::vector<OptionSpec>& specs,
                                  const std::vector<const char*>& words) {
  for (const OptionSpec& spec : specs) {
    const std::string prefix = "--" + spec.name + "=";
    for (const std::string_view word : words) {
      if (!is_flag(spec) || !word.starts_with(prefix)) continue;
      const std::string value(word.substr(prefix.size()));
      if (value != "true" && value != "false")
        return "--" + spec.name + ": expected true or false, got \"" + value + "\"";
    }
  }
  return "";
}

}  // namespace

std::vector<OptionSpec> make_common_specs(const CommandSpec& command) {
  return {
      {.name = "device",
       .default_value = std::string("auto"),
       .help = "auto, cpu, cuda or cuda:N",
       .default_text = command.default_device},
      {.name = "threads",
       .default_value = int64_t{0},
       .help = "CPU threads; 0: run.threads of the config, $OMP_NUM_THREADS, or the processors that the "
               "process may use (of several processes, its share)",
       .min = 0,
       .max = kMaxThreadCount},
      {.name = "seed",
       .default_value = int64_t{0},
       .help = "seed of all random numbers",
       .min = 0,
       .default_text = command.default_seed},
      {.name = "data-dir",
       .default_value = std::string(),
       .help = "folder of the data sets, used instead of $TAPEFORMER_DATA and ~/.local/share/tapeformer"},
      {.name = "set",
       .default_value = std::vector<std::string>{},
       .help = "override a config key: table.key=value; may be repeated"},
      {.name = "json", .default_value = false, .help = "print one JSON object and nothing else"},
      {.name = "quiet", .default_value = false, .help = "only warnings and errors on standard error"},
  };
}

bool is_flag(const OptionSpec& spec) {
  return std::holds_alternative<bool>(spec.default_value);
}

OptionHelp describe_option(const OptionSpec& spec) {
  OptionHelp help{.value = "TEXT", .fallback = format_default(spec), .text = spec.help};
  if (std::holds_alternative<int64_t>(spec.default_value)) help.value = "N";
  if (std::holds_alternative<double>(spec.default_value)) help.value = "X";
  if (!spec.choices.empty()) help.text += " (" + format_choices(spec) + ")";
  if (const bool* enabled = std::get_if<bool>(&spec.default_value)) {
    help.value = "";
    if (*enabled) help.text += " (default: true; --" + spec.name + "=false disables it)";
  }
  return help;
}

std::string format_positionals(const CommandSpec& spec) {
  std::string text;
  for (const PositionalArgument& p : spec.positionals) {
    const std::string name = p.name + (p.is_repeated ? "…" : "");
    text += (text.empty() ? "" : " ") + (p.is_required ? name : "[" + name + "]");
  }
  return text;
}

std::string format_usage(const CommandSpec& spec) {
  return format_positionals(spec) + (spec.positionals.empty() ? "[options]" : " [options]");
}

bool is_given(const CommandLine& line, const std::string& option) {
  return std::find(line.given_option_names.begin(), line.given_option_names.end(), option) !=
         line.given_option_names.end();
}

std::optional<CommandLine> parse_command(const CommandSpec& spec, const Arguments& arguments) {
  cxxopts::Options options("tapeformer " + spec.name, description(spec));
  options.custom_help(format_usage(spec)).positional_help("").set_width(100).allow_unrecognised_options();
  declare(options, spec.name, spec.options);
  declare(options, "Common", make_common_specs(spec));
  options.add_options("Common")("h,help", "print this text");
  const auto end_of_options = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<const char*> words = {"tapeformer"};
  for (auto word = arguments.begin(); word != end_of_options; ++word) words.push_back(word->c_str());
  try {
    const auto parsed = options.parse(static_cast<int>(words.size()), words.data());
    if (parsed.count("help") > 0) {
      const Arguments topics = spec.make_topic_help ? find_help_topics(arguments) : Arguments();
      if (topics.empty()) print_text(format_help(spec, options));
      for (const std::string& topic : topics) print_text(spec.make_topic_help(topic));
      return std::nullopt;
    }
    CommandLine line{list_positional_words(spec, parsed),
                     parse_option_values(spec.options, parsed),
                     parse_common_options(spec, parsed),
                     {}};
    for (const OptionSpec& option : spec.options)
      if (parsed.count(option.name) > 0) line.given_option_names.push_back(option.name);
    if (end_of_options != arguments.end())
      line.positionals.insert(line.positionals.end(), end_of_options + 1, arguments.end());
    check_positionals(spec, line.positionals);
    if (line.common_options.quiet && get_process_rank() == 0) set_log_level(LogLevel::warning);
    set_thread_count(static_cast<int>(line.common_options.threads));
    // Rejects an invalid --device even if the command uses no device.
    choose_device(line.common_options.device);
    return line;
  } catch (const cxxopts::exceptions::missing_argument&) {
    throw ConfigError("\"tapeformer " + spec.name + "\": " + words.back() + " needs a value");
  } catch (const cxxopts::exceptions::exception& error) {
    for (const auto& specs : {spec.options, make_common_specs(spec)})
      if (const std::string problem = describe_flag_problem(specs, words); !problem.empty())
        throw ConfigError(problem);
    throw ConfigError("\"tapeformer " + spec.name + "\": " + error.what());
  }
}

ConfigOverrides make_config_overrides(const CommonOptions& common) {
  return {.config_settings = common.config_settings,
          .device = common.device == "auto" ? "" : common.device,
          .threads = common.threads,
          .seed = common.seed};
}

Device select_device(const CommonOptions& common) {
  return select_and_log_device(common.device);
}

void print_report(const Report& report, const CommonOptions& common) {
  print_text(common.json ? to_json(report) + "\n" : to_text(report));
}

void init_process_group_and_threads(const CommonOptions& common) {
  const ProcessGroup& processes = init_process_group();
  if (common.threads == 0 && processes.default_thread_count > 0)
    set_thread_count(processes.default_thread_count);
  log_processes(processes);
}

void print_text(const std::string& raw) {
  if (get_process_rank() != 0) return;
  const std::string text = escape_text(raw);
  const bool failed =
      std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0;
  // After SIGHUP, standard output may be a closed terminal.
  if (failed && !(errno == EIO && has_received_signal(SIGHUP)))
    throw std::runtime_error(concat_text("cannot write to standard output: ", std::strerror(errno)));
}

void print_generated_text(std::string_view text) {
  if (is_controlling_terminal(STDOUT_FILENO)) return print_text(std::string(text));
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error(concat_text("cannot write to standard output: ", std::strerror(errno)));
}

}  // namespace tapeformer
