#include "train/task.h"

namespace tapeformer {

std::unique_ptr<Task> make_task(const Config& config, const std::string& data_dir, Device device) {
  return config.model.type == "speech" ? make_speech_task(config, data_dir, device)
                                       : make_autoregressive_task(config, data_dir, device);
}

}  // namespace tapeformer
