#include "train/tasks/task.h"

#include "train/build.h"

namespace tapeformer {

std::pair<int64_t, int64_t> compute_slice_range(int64_t count, int rank, int size) {
  return {count * rank / size, count * (rank + 1) / size};
}

std::unique_ptr<Task> make_task(const Config& config, const DataAccessOptions& data, Device device,
                                Communicator& processes) {
  if (config.model.type == "speech") return make_speech_task(config, data, device, processes);
  return predicts_one_result_per_example(config) ? make_example_task(config, data, device, processes)
                                                 : make_autoregressive_task(config, data, device, processes);
}

}  // namespace tapeformer
