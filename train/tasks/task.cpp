#include "train/tasks/task.h"

namespace tapeformer {

std::unique_ptr<Task> make_task(const Config& config, const DataAccess& data, Device device) {
  return config.model.type == "speech" ? make_speech_task(config, data, device)
                                       : make_autoregressive_task(config, data, device);
}

}  // namespace tapeformer
