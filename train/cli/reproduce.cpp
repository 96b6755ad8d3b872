// Command "tapeformer reproduce": reproduces a table or a figure of a paper.
#include "train/reproduce/reproduce.h"

#include <algorithm>

#include "core/errors.h"
#include "core/system/log.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the configs: `named` if it is not empty, or the first existing folder of
// share/tapeformer/configs of the installed program, `configs` in a folder above the program, and ./configs.
fs::path configs_folder(const fs::path& named) {
  std::error_code error;
  if (!named.empty()) {
    if (fs::is_directory(named, error)) return named;
    throw ConfigError(named.string() + ": no folder of configs; name one with --configs");
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> places = {(program.parent_path() / CONFIGS_FROM_PROGRAM).lexically_normal()};
  for (fs::path folder = program; folder.has_relative_path();) {
    folder = folder.parent_path();
    places.push_back(folder / "configs");
  }
  places.emplace_back("configs");
  for (const fs::path& place : places)
    if (fs::is_directory(place / "reformer", error)) return place;
  throw ConfigError("no folder of configs at " + places.front().string() +
                    " or ./configs; name one with --configs");
}

// Returns help text: the config keys and the settings "measure.NAME" that each reproduction takes.
std::string settings_help() {
  std::string text;
  for (const Reproduction& known : reproductions()) {
    text += "  " + known.name + ":";
    for (const std::string& key : known.config_keys) text += " " + key;
    text += "\n";
    for (const OptionSpec& spec : known.measure)
      text += "      measure." + spec.name + ": " + spec.help + "\n";
  }
  return text;
}

CommandSpec reproduce_spec() {
  std::string names;
  for (const Reproduction& known : reproductions())
    names += "  " + known.name + std::string(20 - std::min<size_t>(known.name.size(), 19), ' ') +
             known.summary + "\n";
  return {
      .name = "reproduce",
      .summary =
          "Trains or measures what a table or a figure of a paper shows, and prints the results beside the "
          "published numbers.",
      .positionals = {{"NAME", "a table or figure, or \"list\""}},
      .options = {{.name = "scale",
                   .default_value = std::string("smoke"),
                   .help = "smoke: sizes for two cores; paper: sizes of the paper",
                   .choices = {"smoke", "paper"}},
                  {.name = "out",
                   .default_value = std::string(),
                   .help = "output folder (default: runs/reproduce/NAME-SCALE); a repeated command continues "
                           "trainings in "
                           "it"},
                  {.name = "configs",
                   .default_value = std::string(),
                   .help = "folder of the configs of the experiments (default: the installed configs)"},
                  allow_commands_option()},
      .details = "Tables and figures:\n" + names + "\nSettings that --set changes:\n" + settings_help(),
      .uses_config = true};
}

int list_reproductions(const CommonOptions& common) {
  std::vector<Report> rows;
  for (const Reproduction& known : reproductions())
    rows.push_back(Report().add("name", known.name).add("summary", known.summary));
  print_report(Report().add("reproductions", rows), common);
  return 0;
}

}  // namespace

int run_reproduce(const Arguments& arguments) {
  const auto line = parse_command(reproduce_spec(), arguments);
  if (!line) return 0;
  const std::string& name = line->positionals[0];
  if (name == "list") return list_reproductions(line->common);
  const Reproduction& chosen = reproduction(name);
  const auto& scale = line->options.get<std::string>("scale");
  ReproductionOptions options{.paper = scale == "paper",
                              .configs = configs_folder(line->options.get<std::string>("configs")),
                              .out = line->options.get<std::string>("out"),
                              .device = kCpu,
                              .data = data_access(*line),
                              .quiet = line->common.quiet,
                              .overrides = overrides_of(line->common)};
  read_settings(chosen, options);
  if (!chosen.trains()) require_single_process("reproduction \"" + name + "\"");
  use_processor_share(line->common);
  options.processes = join_processes();
  options.device = use_device(line->common);
  if (options.out.empty()) options.out = fs::path("runs") / "reproduce" / (name + "-" + scale);
  std::error_code error;
  fs::create_directories(options.out, error);
  if (error) throw std::runtime_error("cannot create " + options.out.string() + ": " + error.message());
  try {
    Report report;
    report.add("reproduction", name).add("scale", scale).add("out", options.out.string());
    const Report figures = chosen.run(options);
    for (const auto& [field, value] : figures.fields()) report.add(field, value);
    print_report(report, line->common);
  } catch (const RunDirectoryError& problem) {
    throw_with_options(problem, "--out");
  } catch (const StoppedBySignal&) {
    log_info(
        "a signal stopped the reproduction. To continue, repeat the command: it resumes the interrupted "
        "training and does not repeat finished trainings");
    return kStoppedBySignal;
  }
  return 0;
}

}  // namespace tapeformer
