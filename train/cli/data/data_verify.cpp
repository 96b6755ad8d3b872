// The command "tapeformer data verify": compares files with the published checksums, and checks that speech
// corpora can be used in training.
#include <algorithm>
#include <filesystem>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "data/sets/directory.h"
#include "data/sets/verify.h"
#include "train/build.h"
#include "train/cli/data/data_actions.h"
#include "train/cli/data_advice.h"
#include "train/cli/run_options.h"
#include "train/tasks/speech/features.h"
#include "train/tasks/speech/verify.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

struct Verified {
  std::vector<Report> files, corpora;
  Faults problems;  // faults of all verified data; see select_faults_to_show()
};

// Returns the data set with this name if its files have no published checksums, else nullptr.
const CatalogueEntry* find_unpublished_set(const std::string& name) {
  const CatalogueEntry* const set = find_catalogue_entry(name);
  return set && set->can_be_verified() && !set->has_checksums() ? set : nullptr;
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || (!find_unpublished_set(name) && path_exists(name));
}

bool is_config(const std::string& name) {
  std::error_code ignored;
  return name.ends_with(".toml") && fs::is_regular_file(name, ignored);
}

bool is_layout(const std::string& name) {
  const auto layouts = list_speech_layouts();
  return std::find(layouts.begin(), layouts.end(), name) != layouts.end();
}

bool is_lexicon(const std::string& layout) {
  const CatalogueEntry* const set = find_catalogue_entry(layout);
  return !set || set->type == DatasetType::lexicon;
}

// Returns the name of the data set whose default config is used to verify files in the layout `layout`. A
// lexicon has no config. For a lexicon, returns the name of the first speech corpus with transcripts of
// words.
std::string find_dataset_of_layout(const std::string& layout) {
  if (!is_lexicon(layout)) return layout;
  return list_dataset_names([](const CatalogueEntry& set) {
           return set.type == DatasetType::speech && set.label_kind == SpeechLabelKind::words;
         })
      .front();
}

// Returns the default config of a data set with the changes of the --set options.
Config load_verification_config(const std::string& dataset, const CommandLine& line) {
  std::vector<std::string> sets = {"data.dataset=" + dataset, "data.path=.", "model.type=speech",
                                   "train.epochs=1"};
  sets.insert(sets.end(), line.common_options.config_settings.begin(),
              line.common_options.config_settings.end());
  const Config config = load_config("", sets);
  if (config.data.dataset != dataset)
    throw ConfigError("--set data.dataset: expected \"" + dataset + "\", the set to verify, got \"" +
                      config.data.dataset + "\"");
  for (const std::string& set : line.common_options.config_settings)
    if (set.starts_with("data.path="))
      throw ConfigError("--set data.path: name the folder as an argument of \"data verify\"");
  return config;
}

void add_speech(const std::string& name, const Faults& faults, const SpeechCheckSummary& summary,
                const CommandLine& line, Verified& verified) {
  const Faults shown = select_faults_to_show(faults);
  Report row;
  row.add("set", name).add("faults", static_cast<int64_t>(faults.size())).add("good", faults.empty());
  row.add("sample_rate",
          summary.sample_rate > 0 ? Report::Value(summary.sample_rate) : Report::Value(std::monostate{}));
  if (!summary.cuts.empty()) log_warning(name, ": ", summary.cuts);
  if (line.common_options.json) row.add("problems", shown);
  verified.corpora.push_back(row);
  verified.problems.insert(verified.problems.end(), shown.begin(), shown.end());
}

void verify_folder(const std::string& name, const std::string& layout, const fs::path& folder,
                   const CommandLine& line, Verified& verified) {
  // The config is loaded even if the layout is a lexicon, so that invalid keys in --set cause an error.
  const Config config = load_verification_config(find_dataset_of_layout(layout), line);
  SpeechCheckSummary summary;
  const Faults faults = is_lexicon(layout)
                            ? find_speech_faults(layout, folder)
                            : find_speech_folder_faults(config, folder, make_data_access(line), &summary);
  add_speech(name, faults, summary, line, verified);
  const int64_t rate = summary.sample_rate;
  if (summary.has_other_rates)
    log_info(name, ": the recordings have several sample rates: --set data.resample=true converts them");
  else if (const SpeechCorpus corpus(config); rate > 0 && corpus.options().sample_rate == 0 &&
                                              !corpus.options().resample && rate != corpus.set().sample_rate)
    log_info(name, ": the recordings have ", rate,
             " samples per second: train with --set data.sample_rate=", rate);
}

void verify_published(const std::string& name, const CommandLine& line, Verified& verified) {
  const DatasetReport set = verify_dataset(name, line.common_options.data_dir);
  for (const FileReport& file : set.files)
    verified.files.push_back(Report()
                                 .add("set", name)
                                 .add("file", file.name)
                                 .add("bytes", file.actual_bytes)
                                 .add("good", file.problem.empty())
                                 .add("path", file.path.string()));
  try {
    check_dataset_report(set);
  } catch (const MissingDatasetError& error) {
    verified.problems.push_back(format_missing_dataset_error(error));
  } catch (const DataError& error) {
    verified.problems.push_back(error.what());
  }
}

// Verifies the data that training with the config at `path` reads.
void verify_config(const std::string& path, const CommandLine& line, Verified& verified) {
  const Config config = load_config(path, line.common_options.config_settings);
  const std::string& dataset = config.data.dataset;
  if (config.model.type == "speech") {
    SpeechCheckSummary summary;
    const Faults faults = find_speech_data_faults(config, make_data_access(line), &summary);
    add_speech(path, faults, summary, line, verified);
  } else if (require_catalogue_entry(dataset).type == DatasetType::images) {
    verify_published(dataset, line, verified);
  } else {
    throw ConfigError(
        path + ": the data set \"" + dataset +
        "\" has no files with published checksums and is not a speech corpus, so there is nothing to verify");
  }
}

std::vector<std::string> list_found_sets(const CommandLine& line) {
  std::vector<std::string> names;
  for (const DatasetReport& set : list_dataset_reports(line.common_options.data_dir))
    if (set.folder && set.entry->can_be_verified()) names.push_back(set.name);
  if (names.empty()) throw DataError("no data set was found; \"tapeformer data list\" says how to get them");
  return names;
}

void verify_one(const std::string& name, const std::string& layout, const CommandLine& line,
                Verified& verified) {
  if (is_config(name)) return verify_config(name, line, verified);
  if (is_path(name)) return verify_folder(name, layout, name, line, verified);
  if (const CatalogueEntry* const set = find_unpublished_set(name))
    return verify_folder(name, name, require_dataset_folder(*set, line.common_options.data_dir), line,
                         verified);
  const auto known = list_dataset_names(&CatalogueEntry::can_be_verified);
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw ConfigError(describe_unknown_word("data set, folder or config", name, known));
  verify_published(name, line, verified);
}

}  // namespace

void verify_data(const std::vector<std::string>& names, const CommandLine& line) {
  const std::vector<std::string> wanted = names.empty() ? list_found_sets(line) : names;
  Verified verified;
  std::string layout = line.options.get<std::string>("layout");
  for (size_t i = 0; i < wanted.size(); ++i) {
    // In the command "data verify kaldi FOLDER...", the word "kaldi" is the layout of all folders that
    // follow.
    if (is_layout(wanted[i]) && i + 1 < wanted.size() && is_path(wanted[i + 1]) && !is_config(wanted[i + 1]))
      layout = wanted[i];
    else
      verify_one(wanted[i], layout, line, verified);
  }
  Report report;
  report.add("good", verified.problems.empty());
  // JSON output has one list of files and corpora, and text output has two tables.
  if (line.common_options.json) {
    verified.files.insert(verified.files.end(), verified.corpora.begin(), verified.corpora.end());
    verified.corpora.clear();
  }
  report.add("files", verified.files);
  if (!line.common_options.json) report.add("corpora", verified.corpora);
  print_report(report, line.common_options);
  std::string text;
  for (const std::string& problem : verified.problems) text += (text.empty() ? "" : "\n") + problem;
  if (!text.empty()) throw DataError(text);
}

}  // namespace tapeformer
