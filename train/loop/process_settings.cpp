#include "train/loop/process_settings.h"

#include <algorithm>
#include <sstream>

#include "core/device.h"
#include "core/errors.h"
#include "core/system/machine.h"
#include "train/version.h"

namespace tapeformer {
namespace {

// Keys whose values may differ between the machines of a run.
constexpr const char* kLocalKeys[] = {"run.device",      "run.threads",      "data.path",
                                      "data.valid_path", "data.test_path",   "data.sentencepiece_model",
                                      "data.lexicon",    "data.image_cache", "data.feature_cache",
                                      "model.init"};

}  // namespace

RunConfig process_settings(const RunConfig& run, const Processes& processes) {
  RunConfig own = run;
  if (processes.communicator->size() == 1) return own;
  if (own.threads == 0) own.threads = processes.processor_share;
  if (run.device == "cuda" || (run.device == "auto" && !choose_device(run.device).device.is_cpu()))
    own.device = "cuda:" + std::to_string(processes.local_rank);
  return own;
}

SharedSettings program_settings() {
  const BuildInfo build = build_info();
  return {{"version of the program",
           concat_text(build.version, ", commit ", source_commit(), ", ", build.build_type)}};
}

SharedSettings shared_settings(const Config& config) {
  SharedSettings settings = program_settings();
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

int agreed_signal(Communicator& processes, int signal) {
  return static_cast<int>(largest(processes, signal));
}

bool any_process(Communicator& processes, bool condition) {
  return agreed_signal(processes, condition) != 0;
}

}  // namespace tapeformer
