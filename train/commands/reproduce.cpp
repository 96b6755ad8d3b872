// tapeformer reproduce: runs a table or a figure of a paper and prints ours beside the paper's.
#include "train/reproduce/reproduce.h"

#include <algorithm>

#include "core/errors.h"
#include "train/commands/commands.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

CommandSpec reproduce_spec() {
  std::string names;
  for (const Reproduction& known : reproductions())
    names += "  " + known.name + std::string(20 - std::min<size_t>(known.name.size(), 19), ' ') +
             known.summary + "\n";
  return {
      .name = "reproduce",
      .summary =
          "Trains or measures what a table or a figure of a paper shows, with the paper's numbers where it "
          "prints them.",
      .positionals = {{"NAME", "a table or figure, or \"list\""}},
      .options =
          {{.name = "scale",
            .default_value = std::string("smoke"),
            .help = "smoke: sizes for two cores; paper: the paper's",
            .choices = {"smoke", "paper"}},
           {.name = "out",
            .default_value = std::string(),
            .help =
                "where to write (default: runs/reproduce/NAME-SCALE); a second call continues its trainings"},
           {.name = "configs",
            .default_value = std::string("configs"),
            .help = "the folder of the repository's configs"}},
      .details = "Tables and figures:\n" + names,
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
  use_device(line->common);

  const auto& scale = line->options.get<std::string>("scale");
  ReproductionOptions options{.paper = scale == "paper",
                              .configs = line->options.get<std::string>("configs"),
                              .out = line->options.get<std::string>("out"),
                              .common = line->common};
  if (options.out.empty()) options.out = fs::path("runs") / "reproduce" / (name + "-" + scale);
  std::error_code error;
  if (!fs::is_directory(options.configs, error))
    throw ConfigError(options.configs.string() + ": no folder of configs; name one with --configs");
  fs::create_directories(options.out, error);
  if (error) throw std::runtime_error("cannot make " + options.out.string() + ": " + error.message());
  try {
    Report report;
    report.add("reproduction", name).add("scale", scale).add("out", options.out.string());
    const Report figures = chosen.run(options);
    for (const auto& [field, value] : figures.fields()) report.add(field, value);
    print_report(report, line->common);
  } catch (const StoppedBySignal&) {
    return kStoppedBySignal;
  }
  return 0;
}

}  // namespace tapeformer
