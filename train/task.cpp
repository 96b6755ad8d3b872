#include "train/task.h"

#include <nlohmann/json.hpp>

namespace tapeformer {

nlohmann::ordered_json Task::description() const {
  return nullptr;
}

std::unique_ptr<Task> make_task(const Config& config, const std::string& data_dir) {
  return config.model.type == "speech" ? make_speech_task(config, data_dir)
                                       : make_autoregressive_task(config, data_dir);
}

}  // namespace tapeformer
