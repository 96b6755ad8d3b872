// The command "tapeformer reproduce": reproduces a table or a figure of a paper.
#include <algorithm>
#include <optional>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "train/cli/commands.h"
#include "train/cli/configs_folder.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/reproduce/measurement_kind.h"
#include "train/reproduce/render.h"
#include "train/reproduce/runner.h"
#include "train/reproduce/table_file.h"
#include "train/reproduce/table_settings.h"
#include "train/reproduce/verify.h"
#include "train/version.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the configs: `named`, which is the value of --configs, or find_configs_folder() if
// `named` is empty. Throws ConfigError if there is no such folder.
fs::path choose_configs_folder(const fs::path& named) {
  const fs::path folder = named.empty() ? find_configs_folder() : named;
  if (folder.empty())
    throw ConfigError("no folder of configs near the program or at ./configs; name one with --configs");
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw ConfigError(folder.string() + ": no folder of configs; name one with --configs");
  return folder;
}

// Returns the tables of the configs that belong to the program, without files that cannot be read.
std::vector<TableFile> list_known_tables() {
  std::vector<TableFile> tables;
  const fs::path folder = find_configs_folder();
  if (folder.empty()) return tables;
  for (const std::string& name : list_table_names(folder)) try {
      tables.push_back(read_table_file(name, folder));
    } catch (const ConfigError&) {
      continue;  // the command with this name reports the error
    }
  return tables;
}

std::string format_kinds_help() {
  std::string text;
  for (const MeasurementKind& kind : list_measurement_kinds()) {
    text += "  " + kind.name + ": " + kind.help + "\n";
    for (const OptionSpec& option : kind.options) text += "      " + option.name + ": " + option.help + "\n";
  }
  return text;
}

std::string format_tables_help(const std::vector<TableFile>& tables) {
  std::string text;
  for (const TableFile& table : tables) {
    text += "  " + table.name + std::string(20 - std::min<size_t>(table.name.size(), 19), ' ') +
            table.summary() + "\n";
    for (const auto& [name, help] : list_measure_options(table))
      text += "      --set measure." + name + ": " + help + "; 0: depends on --scale\n";
  }
  return text;
}

std::vector<OptionSpec> make_reproduce_options() {
  return {
      {.name = "scale",
       .default_value = std::string("smoke"),
       .help = "smoke: minutes, only tests the command; small: hours on two cores; paper: sizes of the paper",
       .choices = list_table_scales()},
      {.name = "seeds",
       .default_value = std::string(),
       .help = "seeds, such as 1,2,3: one training per row and seed",
       .default_text = "--seed"},
      {.name = "rows",
       .default_value = std::string(),
       .help = "rows, such as linear,lsh-4",
       .default_text = "all"},
      {.name = "jobs",
       .default_value = int64_t{1},
       .help = "trainings at the same time, each with its share of the threads",
       .min = 1,
       .max = 256},
      {.name = "dry-run",
       .default_value = false,
       .help = "print the estimated time, memory and disk space of each row, and write nothing"},
      {.name = "out",
       .default_value = std::string(),
       .help = "output folder; a repeated command continues trainings in it, and does not repeat finished "
               "trainings and measurements",
       .default_text = "runs/reproduce/NAME-SCALE"},
      {.name = "runs",
       .default_value = std::string(),
       .help = "folder of the trainings, such as DIR/runs of another table with the same models",
       .default_text = "runs in the output folder"},
      {.name = "verify",
       .default_value = std::string(),
       .help = "table.json or file of docs/results: repeats its rows with its scale, settings and first "
               "seed, and says which values agree; exit status 1 if one differs. --out is then "
               "runs/verify/NAME-SCALE-COMMIT"},
      {.name = "verify-minutes",
       .default_value = 10.0,
       .help = "repeat rows that took at most so many minutes",
       .min = 0},
      {.name = "verify-tolerance",
       .default_value = 0.01,
       .help = "relative difference of values without a spread",
       .min = 0},
      {.name = "configs",
       .default_value = std::string(),
       .help = "folder of the configs of the experiments",
       .default_text = "the installed configs"},
      make_allow_commands_option()};
}

int print_tables(const CommandLine& line) {
  const fs::path folder = choose_configs_folder(line.options.get<std::string>("configs"));
  std::vector<Report> rows;
  for (const std::string& name : list_table_names(folder))
    rows.push_back(Report().add("name", name).add("summary", read_table_file(name, folder).summary()));
  print_report(Report().add("reproductions", rows), line.common_options);
  return 0;
}

// Splits the value of an option at its commas. Returns an empty list if the option does not occur on the
// command line. Throws ConfigError if a word is empty or occurs twice.
std::vector<std::string> split_word_list(const CommandLine& line, const std::string& option) {
  if (!is_given(line, option)) return {};
  const auto& text = line.options.get<std::string>(option);
  std::vector<std::string> words;
  for (size_t first = 0, comma = 0; comma < text.size(); first = comma + 1) {
    comma = std::min(text.find(',', first), text.size());
    words.push_back(text.substr(first, comma - first));
    if (words.back().empty()) throw ConfigError("--" + option + " " + text + ": a word is empty");
    if (std::count(words.begin(), words.end(), words.back()) > 1)
      throw ConfigError("--" + option + " " + text + ": \"" + words.back() + "\" occurs twice");
  }
  return words;
}

// Returns the seeds in --seeds or the seed in --seed, or an empty list. Throws ConfigError if both options
// occur.
std::vector<int64_t> parse_seeds(const CommandLine& line) {
  const auto& seed = line.common_options.seed;
  if (split_word_list(line, "seeds").empty())
    return seed ? std::vector<int64_t>{*seed} : std::vector<int64_t>();
  if (line.common_options.seed) throw ConfigError("--seed and --seeds cannot be combined");
  return parse_index_list("seeds", line.options.get<std::string>("seeds"));
}

// Reads the file in --verify. Throws ConfigError if another option contradicts it.
std::optional<StatedTable> read_verified_table(const TableFile& file, const CommandLine& line) {
  if (!is_given(line, "verify")) {
    for (const char* option : {"verify-minutes", "verify-tolerance"})
      if (is_given(line, option)) throw ConfigError(concat_text("--", option, " needs --verify"));
    return std::nullopt;
  }
  for (const char* option : {"scale", "dry-run"})
    if (is_given(line, option))
      throw ConfigError(concat_text("--", option, " and --verify cannot be combined"));
  if (!line.common_options.config_settings.empty())
    throw ConfigError("--set and --verify cannot be combined: the file states the settings");
  return read_stated_table(line.options.get<std::string>("verify"), file.name);
}

VerificationOptions make_verification_options(const CommandLine& line) {
  return {.max_minutes = line.options.get<double>("verify-minutes"),
          .tolerance = line.options.get<double>("verify-tolerance")};
}

// Prints the comparison. Returns the exit status.
int print_verification(const StatedTable& stated, const Json& repeated, const Table& table,
                       const ReproductionOptions& options, const CommandLine& line) {
  const Verification verification =
      compare_tables(stated, repeated, table, make_verification_options(line), options);
  print_report(verification.report, line.common_options);
  if (verification.different == 0) return 0;
  log_message(LogLevel::error, concat_text(verification.different, " values differ from ", stated.path));
  return kFailureExitStatus;
}

ReproductionOptions make_reproduction_options(const TableFile& file, const CommandLine& line,
                                              const std::optional<StatedTable>& stated) {
  const auto text = [&](const char* name) { return line.options.get<std::string>(name); };
  ReproductionOptions options{.scale = text("scale"),
                              .config_folder = choose_configs_folder(text("configs")),
                              .output_folder = text("out"),
                              .runs_folder = text("runs"),
                              .seeds = parse_seeds(line),
                              .row_names = split_word_list(line, "rows"),
                              .max_parallel_jobs = line.options.get<int64_t>("jobs"),
                              .data_access = make_data_access(line),
                              .quiet = line.common_options.quiet,
                              .overrides = make_config_overrides(line.common_options)};
  if (stated) {
    options.scale = stated->scale;
    options.overrides.config_settings = stated->settings;
  }
  if (options.output_folder.empty())
    options.output_folder = fs::path("runs") / (stated ? "verify" : "reproduce") /
                            (file.name + "-" + options.scale +
                             // The results of another program are not compared again.
                             (stated ? "-" + get_source_commit() : ""));
  if (!options.runs_folder.empty() && !is_folder(options.runs_folder))
    throw ConfigError("--runs " + options.runs_folder.string() + ": no such folder");
  return options;
}

void print_table(const TableResult& result, const ReproductionOptions& options, const CommonOptions& common) {
  if (common.json) return print_text(result.table.dump() + "\n");
  print_text(to_markdown(result.table));
  log_info("the files are in ", options.output_folder.string(),
           ": table.html, table.md, table.csv, table.json");
}

// Logs the message that a signal stopped the reproduction. Process 0 uses the level "info". Other processes
// use the level "error", because their log discards messages of the level "info".
void print_stopped(const std::string& text) {
  log_message(get_process_rank() == 0 ? LogLevel::info : LogLevel::error, text);
}

}  // namespace

CommandSpec make_reproduce_spec(const Arguments& /*words*/) {
  const std::vector<TableFile> tables = list_known_tables();
  std::vector<std::string> words = {"list"};
  for (const TableFile& table : tables) words.push_back(table.name);
  return {.summary =
              "Reproduces a table or a figure of a paper by trainings and measurements, and prints the "
              "results beside the published numbers. Runs tables of users, such as sweeps, in the same way.",
          .positionals = {{.name = "NAME",
                           .help = "a table or figure, a file such as my-sweep.toml, or \"list\"",
                           .suggestions = words}},
          .options = make_reproduce_options(),
          .details = "Tables and figures:\n" + format_tables_help(tables) +
                     "\nKinds of measurements in files:\n" + format_kinds_help(),
          .uses_config = true,
          .default_seed = "1"};
}

int run_reproduce(const CommandLine& line) {
  const std::string& name = line.positionals[0];
  if (name == "list") return print_tables(line);
  const TableFile file =
      read_table_file(name, choose_configs_folder(line.options.get<std::string>("configs")));
  const ProcessGroup& processes = init_process_group();
  init_process_group_and_threads(line.common_options);
  const std::optional<StatedTable> stated = read_verified_table(file, line);
  ReproductionOptions options = make_reproduction_options(file, line, stated);
  const std::string device = select_device(line.common_options).to_string();
  options.device = options.overrides.device.empty() ? device : options.overrides.device;
  const Table table = make_table(file, options);
  if (stated)
    for (const std::string& skipped :
         select_verified_rows(*stated, table, make_verification_options(line), options))
      log_info("not repeated: ", skipped);
  if (options.seeds.empty()) options.seeds = table.seeds;
  if (line.options.get<bool>("dry-run")) {
    if (processes.communicator->size() > 1)
      throw ConfigError("--dry-run estimates in one process; run it without mpirun");
    try {
      print_report(estimate_reproduction_costs(table, options), line.common_options);
    } catch (const CommandError& failed) {
      log_message(LogLevel::error, failed.what());
      return failed.exit_status();
    }
    return 0;
  }
  const TableResult result = run_reproduction(table, options);
  const bool first = processes.communicator->is_first();
  if (first && !stated) print_table(result, options, line.common_options);
  if (result.stop_signal != 0)
    return destroy_process_group(kSignalStopExitStatus,
                                 "a signal stopped the reproduction. To continue, repeat the command: it "
                                 "resumes the interrupted trainings and does not repeat finished trainings",
                                 print_stopped);
  for (const std::string& failure : result.failures)
    if (first) log_message(LogLevel::error, failure);
  if (!stated || !first) return result.failure_status;
  const int compared = print_verification(*stated, result.table, table, options, line);
  return result.failure_status != 0 ? result.failure_status : compared;
}

}  // namespace tapeformer
