#include "train/loop/process_settings.h"

#include <algorithm>
#include <sstream>

#include "core/device.h"
#include "core/system/machine.h"

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

SharedSettings shared_settings(const Config& config) {
  SharedSettings settings{{"version of the program", build_info().version + ", " + build_info().build_type}};
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
  const Tensor signals = Tensor::zeros({processes.size()}, DType::int64);
  int64_t* const first = signals.data<int64_t>();
  first[processes.rank()] = signal;
  processes.all_reduce(signals);
  return static_cast<int>(*std::max_element(first, first + processes.size()));
}

bool any_process(Communicator& processes, bool condition) {
  return agreed_signal(processes, condition) != 0;
}

}  // namespace tapeformer
