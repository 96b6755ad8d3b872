// tapeformer data: where the data sets are, whether their files are the published ones, and getting them.
#include <algorithm>

#include "core/errors.h"
#include "core/log.h"
#include "data/dataset.h"
#include "data/directory.h"
#include "data/fetch.h"
#include "data/speech_sets.h"
#include "data/synthetic_speech.h"
#include "data/verify.h"
#include "data/verify_speech.h"
#include "train/commands/commands.h"
#include "train/commands/run_options.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// `names` are the sets that the user named.
using Action = void (*)(const std::vector<std::string>& names, const CommandLine& line);

void require_names(const std::vector<std::string>& names, const std::string& action) {
  if (names.empty()) throw ConfigError("\"tapeformer data " + action + "\" needs the NAME of a data set");
}

void list_action(const std::vector<std::string>& names, const CommandLine& line) {
  for (const std::string& name : names) known_set(name);
  std::vector<Report> rows;
  for (const SetReport& set : list_sets(line.common.data_dir)) {
    if (!names.empty() && std::find(names.begin(), names.end(), set.name) == names.end()) continue;
    const auto missing =
        std::count_if(set.files.begin(), set.files.end(), [](const auto& file) { return file.path.empty(); });
    const auto total = static_cast<int64_t>(set.files.size());
    rows.push_back(Report()
                       .add("name", set.name)
                       .add("files", total - missing)
                       .add("of", total)
                       .add("folder", set.folder ? set.folder->string() : "not found")
                       .add("title", set.title));
    if (!line.common.json && missing == total)
      log_info(set.name, " is not here; to get it: ", set.how_to_get);
  }
  print_report(Report().add("sets", rows), line.common);
}

bool is_speech_set(const std::string& name) {
  const auto sets = speech_sets();
  return std::find(sets.begin(), sets.end(), name) != sets.end();
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || (!is_speech_set(name) && fs::exists(name));
}

// The faults of a corpus of speech, by file and line; its sound is looked at too.
void verify_speech(const std::string& name, const CommandLine& line, std::vector<Report>& rows,
                   std::string& problems) {
  const bool path = is_path(name);
  const std::vector<std::string> found =
      speech_problems(path ? line.options.get<std::string>("layout") : name,
                      path ? fs::path(name) : speech_set_folder(name, line.common.data_dir),
                      line.options.get<bool>("allow-commands"));
  rows.push_back(
      Report().add("set", name).add("faults", static_cast<int64_t>(found.size())).add("good", found.empty()));
  for (const std::string& problem : found) problems += (problems.empty() ? "" : "\n") + problem;
}

void verify_action(const std::vector<std::string>& names, const CommandLine& line) {
  std::vector<std::string> wanted = names;
  if (wanted.empty())
    for (const SetReport& set : list_sets(line.common.data_dir))
      if (set.folder) wanted.push_back(set.name);
  if (wanted.empty()) throw DataError("no data set was found; \"tapeformer data list\" says how to get them");
  std::vector<Report> rows;
  std::string problems;
  std::vector<std::string> known = speech_sets();
  for (const SetReport& set : list_sets(line.common.data_dir)) known.push_back(set.name);
  for (const std::string& name : wanted) {
    if (is_speech_set(name) || is_path(name)) {
      verify_speech(name, line, rows, problems);
      continue;
    }
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw ConfigError(unknown_text("data set or folder", name, known));
    const SetReport set = verify_set(name, line.common.data_dir);
    for (const FileReport& file : set.files)
      rows.push_back(Report()
                         .add("set", name)
                         .add("file", file.name)
                         .add("bytes", file.bytes)
                         .add("good", file.problem.empty())
                         .add("path", file.path.string()));
    try {
      require_good(set);
    } catch (const DataError& error) {
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  print_report(Report().add("good", problems.empty()).add("files", rows), line.common);
  if (!problems.empty()) throw DataError(problems);
}

void fetch_action(const std::vector<std::string>& names, const CommandLine& line) {
  require_names(names, "fetch");
  std::vector<Report> rows;
  for (const std::string& name : names) {
    const SetReport set = fetch_set(name, line.common.data_dir, line.options.get<std::string>("from"));
    rows.push_back(Report()
                       .add("name", name)
                       .add("files", static_cast<int64_t>(set.files.size()))
                       .add("good", set.good())
                       .add("folder", set.folder ? set.folder->string() : ""));
  }
  print_report(Report().add("sets", rows), line.common);
}

// Into the first data directory, like what is fetched.
void prepare_synthetic_speech(const CommandLine& line) {
  KnownSet set{};
  set.name = "synthetic-speech";
  const std::filesystem::path folder = candidate_folders(set, line.common.data_dir).front();
  SyntheticSpeechOptions options;
  options.train = line.options.get<int64_t>("sentences");
  options.valid = options.test = std::max<int64_t>(1, options.train / 10);
  options.seed = static_cast<uint64_t>(line.common.seed.value_or(0));
  make_synthetic_speech(folder, options);
  print_report(Report()
                   .add("name", "synthetic-speech")
                   .add("folder", folder.string())
                   .add("train", options.train)
                   .add("valid", options.valid)
                   .add("test", options.test),
               line.common);
}

// Image files are used as they are, so preparing a set means reading all of it once, as training will.
void prepare_action(const std::vector<std::string>& names, const CommandLine& line) {
  require_names(names, "prepare");
  if (names == std::vector<std::string>{"synthetic-speech"}) return prepare_synthetic_speech(line);
  std::vector<Report> rows;
  for (const std::string& name : names)
    for (const std::string split : {"train", "test"}) {
      known_set(name);
      DatasetOptions options;
      options.name = name;
      options.split = split;
      options.data_dir = line.common.data_dir;
      const auto dataset = make_dataset(options);
      rows.push_back(Report()
                         .add("name", name)
                         .add("split", split)
                         .add("examples", dataset->size())
                         .add("tokens_per_example", dataset->info().length + 1));
    }
  log_info("ready: these sets are read from their files as they are");
  print_report(Report().add("splits", rows), line.common);
}

}  // namespace

int run_data(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "data",
       .summary = "Data sets: where they are, whether their files are the published ones, and getting them.",
       .positionals = {{"ACTION", "list, verify, fetch or prepare"},
                       {"NAME", "data sets; list and verify take all without", false, true}},
       .options =
           {{.name = "from",
             .default_value = std::string(),
             .help = "fetch: path or URL of a folder with the files, instead of the published one"},
            {.name = "sentences",
             .default_value = int64_t{600},
             .help = "prepare synthetic-speech: sentences for training; a tenth as many for valid and test"},
            {.name = "layout",
             .default_value = std::string("kaldi"),
             .help = "verify: how the folders that are named by path are laid out",
             .choices = speech_layouts()},
            allow_commands_option()},
       .details =
           "list     every known set: what of it was found, and where\n"
           "verify   reads every byte and compares size and checksum; exit code 3 if something is wrong\n"
           "         (an4, fsdd, synthetic-speech, cmudict, or the path of a folder of speech in\n"
           "         --layout: every fault by file and line)\n"
           "fetch    downloads what is missing into the first data directory, and verifies it\n"
           "prepare  reads the whole set once, as training will; synthetic-speech is spoken by espeak-ng\n\n"
           "Data directories, in order: --data-dir, $TAPEFORMER_DATA, $XDG_DATA_HOME/tapeformer\n"
           "(~/.local/share/tapeformer), each with one folder per set; then the folder of the set's\n"
           "Debian package."},
      arguments);
  if (!line) return 0;
  const std::vector<std::pair<std::string, Action>> actions = {
      {"list", list_action}, {"verify", verify_action}, {"fetch", fetch_action}, {"prepare", prepare_action}};
  const std::string& wanted = line->positionals.front();
  std::vector<std::string> known;
  for (const auto& [name, action] : actions) {
    known.push_back(name);
    if (name != wanted) continue;
    action({line->positionals.begin() + 1, line->positionals.end()}, *line);
    return 0;
  }
  throw ConfigError(unknown_text("action", wanted, known));
}

}  // namespace tapeformer
