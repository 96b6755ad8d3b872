// Texts of --help without a command, and of the manual pages.
#include <algorithm>
#include <utility>

#include "core/base/errors.h"
#include "core/system/machine.h"
#include "models/attention/attention.h"
#include "train/cli/commands.h"

namespace tapeformer {
namespace {

constexpr char kProgramSummary[] = "trains Transformers for images, text and speech";

constexpr std::pair<const char*, const char*> kExitStatuses[] = {
    {"0", "success"},
    {"1", "failure while running"},
    {"2", "wrong usage or config"},
    {"3", "data or checkpoint missing or corrupt"},
    {"4", "device not available"},
    {"5", "training diverged, or a model is not finite"},
    {"75", "SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGUSR2 stopped a training, which wrote a checkpoint"},
    {"130", "one of these signals ended a process that had nothing to save"}};

std::string list_kind_names() {
  std::string kinds;
  for (const AttentionKind& kind : list_attention_kinds()) kinds += (kinds.empty() ? "" : ", ") + kind.name;
  return kinds;
}

// Escapes a text for roff.
std::string to_roff(const std::string& text) {
  std::string roff;
  for (const char c : text) {
    const bool starts_line = roff.empty() || roff.back() == '\n';
    if (starts_line && (c == '.' || c == '\'')) roff += "\\&";
    roff += c == '\\'  ? "\\e"
            : c == '-' ? "\\-"
            : c == '^' ? "\\(ha"
            : c == '~' ? "\\(ti"
                       : std::string(1, c);
  }
  return roff;
}

std::string format_section(const std::string& title) {
  return ".SH " + title + "\n";
}

// Returns a paragraph with an indented text after its first line. Both are roff.
std::string format_item(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + text + "\n";
}

std::string format_options(const std::vector<OptionSpec>& specs) {
  std::string roff;
  for (const OptionSpec& spec : specs) {
    const OptionHelp help = describe_option(spec);
    roff +=
        format_item("\\fB" + to_roff("--" + spec.name) + "\\fR" +
                        (help.value.empty() ? "" : " \\fI" + help.value + "\\fR"),
                    to_roff(help.text + (help.fallback.empty() ? "" : " (default: " + help.fallback + ")")));
  }
  return roff;
}

// Converts a text of lines for a terminal. Lines that are indented by six spaces explain the line above them,
// and are filled; the other lines stay as they are.
std::string format_lines(const std::string& text) {
  constexpr char kIndent[] = "      ";
  std::vector<std::string> lines;
  for (size_t first = 0, end = 0; first < text.size(); first = end + 1) {
    end = std::min(text.find('\n', first), text.size());
    lines.push_back(text.substr(first, end - first));
  }
  std::string roff = ".nf\n";
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string explanation;
    const std::string& tag = lines[i];
    for (; i + 1 < lines.size() && lines[i + 1].starts_with(kIndent); ++i)
      explanation +=
          (explanation.empty() ? "" : "\n.br\n") + to_roff(lines[i + 1].substr(sizeof kIndent - 1));
    if (explanation.empty())
      roff += tag.empty() ? ".sp\n" : to_roff(tag) + "\n";
    else
      roff += ".fi\n" + format_item(to_roff(tag), explanation) + ".PP\n.nf\n";
  }
  return roff + ".fi\n";
}

std::string format_page(const std::string& name, const std::string& summary, const std::string& body) {
  return ".TH " + to_roff(name) + " 1 \"\" \"tapeformer " + get_build_info().version + "\" Tapeformer\n" +
         format_section("NAME") + to_roff(name + " - " + summary) + "\n" + body;
}

std::string format_program_page() {
  std::string body = format_section("SYNOPSIS") + ".B tapeformer\n\\fICOMMAND\\fR [arguments] [options]\n" +
                     format_section("DESCRIPTION") + to_roff("Attention kinds: " + list_kind_names()) +
                     ".\n" + format_section("COMMANDS");
  for (const Command& command : list_commands())
    body += ".TP\n.BR " + to_roff("tapeformer-" + command.name) + " (1)\n" + to_roff(command.summary) + "\n";
  body += format_section("EXIT STATUS");
  for (const auto& [status, meaning] : kExitStatuses) body += format_item(status, meaning);
  return format_page("tapeformer", kProgramSummary, body);
}

}  // namespace

std::string format_help_text() {
  std::string text = "tapeformer " + get_build_info().version + ": " + kProgramSummary +
                     "\n\nAttention kinds: " + list_kind_names() +
                     "\n\nUsage:\n  tapeformer COMMAND [arguments] [options]\n\nCommands:\n";
  std::vector<std::string> usages;
  size_t width = 0;
  for (const Command& command : list_commands()) {
    usages.push_back(command.name + " " + format_positionals(make_command_spec(command)));
    width = std::max(width, usages.back().size());
  }
  for (size_t i = 0; i < usages.size(); ++i)
    text +=
        "  " + usages[i] + std::string(width - usages[i].size() + 1, ' ') + list_commands()[i].summary + "\n";
  text +=
      "\n\"tapeformer COMMAND --help\" explains a command, \"tapeformer help --man COMMAND\" prints its "
      "manual "
      "page, and\n\"tapeformer --version\" the version.\n\nExit status:\n";
  for (const auto& [status, meaning] : kExitStatuses)
    text += "  " + std::string(status) + std::string(5 - std::string(status).size(), ' ') + meaning + "\n";
  return text;
}

std::string format_man_page(const Arguments& words) {
  if (words.empty()) return format_program_page();
  const Command& command = find_command(words.front());
  if (words.size() > 1)
    throw ConfigError("\"tapeformer help --man\" takes one command, not also \"" + words[1] + "\"");
  const CommandSpec spec = make_command_spec(command);
  std::string body = format_section("SYNOPSIS") + ".B " + to_roff("tapeformer " + command.name) + "\n" +
                     to_roff(format_usage(spec)) + "\n" + format_section("DESCRIPTION") +
                     to_roff(spec.summary) + "\n";
  for (const PositionalArgument& argument : spec.positionals)
    body += format_item("\\fI" + argument.name + "\\fR", to_roff(argument.help));
  if (!spec.options.empty()) body += format_section("OPTIONS") + format_options(spec.options);
  body += format_section("COMMON OPTIONS") + format_options(make_common_specs(spec));
  if (!spec.details.empty()) body += format_section("DETAILS") + format_lines(spec.details);
  return format_page("tapeformer-" + command.name, command.summary,
                     body + format_section("SEE ALSO") + ".BR tapeformer (1)\n");
}

}  // namespace tapeformer
