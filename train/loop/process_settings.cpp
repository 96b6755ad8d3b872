#include "train/loop/process_settings.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/base/environment.h"
#include "core/base/errors.h"
#include "core/device.h"
#include "core/system/log.h"
#include "core/system/machine.h"
#include "core/threads/threads.h"
#include "train/distributed/launcher.h"
#include "train/version.h"

namespace tapeformer {
namespace {

// Config keys that may differ between processes, because machines can have different devices and paths.
constexpr const char* kLocalKeys[] = {"run.device",      "run.threads",        "data.path",
                                      "data.valid_path", "data.test_path",     "data.sentencepiece_model",
                                      "data.lexicon",    "data.image_cache",   "data.feature_cache",
                                      "model.init",      "data.tokenizer_file"};

}  // namespace

RunConfig make_process_run_config(const RunConfig& run, const ProcessGroup& processes) {
  RunConfig own = run;
  if (processes.communicator->size() == 1) return own;
  if (own.threads == 0) own.threads = processes.default_thread_count;
  if (run.device == "cuda" || (run.device == "auto" && !choose_device(run.device).device.is_cpu()))
    own.device = "cuda:" + std::to_string(processes.local_rank);
  return own;
}

std::vector<std::string> list_oversubscription_warnings(const std::vector<ProcessLocation>& locations,
                                                        const std::vector<int64_t>& thread_counts) {
  struct Load {
    int64_t processes = 0, threads = 0;
    std::set<int> processors;
  };
  std::map<std::string, Load> loads;  // by host
  for (size_t rank = 0; rank < locations.size(); ++rank) {
    Load& load = loads[locations[rank].host];
    ++load.processes;
    load.threads += thread_counts[rank];
    load.processors.insert(locations[rank].processors.begin(), locations[rank].processors.end());
  }
  std::vector<std::string> texts;
  for (const auto& [host, load] : loads)
    if (load.threads > static_cast<int64_t>(load.processors.size()))
      texts.push_back(concat_text("host ", host, ": ", load.processes, " processes with ", load.threads,
                                  " threads in total may use only ", load.processors.size(),
                                  " processors; use fewer threads or processes"));
  return texts;
}

void log_processes(const ProcessGroup& processes) {
  Communicator& communicator = *processes.communicator;
  if (communicator.size() == 1) {
    const std::string text = describe_unused_tasks(read_launch_info(), get_environment_variable);
    if (!text.empty()) log_info(text);
    return;
  }
  const std::vector<int64_t> counts = all_gather_numbers(communicator, get_thread_count());
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const std::string range = concat_text(*least, *least < *most ? concat_text(" to ", *most) : "");
  log_info(communicator.size(), " processes with ", range, *most == 1 ? " thread each" : " threads each");
  if (!communicator.is_first()) return;
  for (const std::string& text : list_oversubscription_warnings(processes.locations, counts))
    log_warning(text);
}

SharedSettings list_version_settings() {
  const BuildInfo build = get_build_info();
  return {{"version of the program",
           concat_text(build.version, ", commit ", get_source_commit(), ", ", build.build_type)}};
}

SharedSettings list_shared_settings(const Config& config) {
  SharedSettings settings = list_version_settings();
  std::istringstream lines(to_toml(config));
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[")) table = line.substr(1, line.find(']') - 1);
    if (equals == std::string::npos) continue;
    const std::string name = table + "." + line.substr(0, equals);
    if (std::find(std::begin(kLocalKeys), std::end(kLocalKeys), name) == std::end(kLocalKeys))
      settings.emplace_back(name, line.substr(equals + 3));
  }
  return settings;
}

int all_reduce_max_signal(Communicator& processes, int signal) {
  return static_cast<int>(all_reduce_max(processes, signal));
}

bool is_true_on_any_process(Communicator& processes, bool condition) {
  return all_reduce_max_signal(processes, condition) != 0;
}

}  // namespace tapeformer
