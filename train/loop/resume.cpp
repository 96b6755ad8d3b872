#include "train/loop/resume.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "train/checkpoint/adapters.h"
#include "train/checkpoint/checkpoint.h"
#include "train/finite.h"
#include "train/loop/checkpoint_writer.h"

namespace tapeformer {
namespace {

// Returns whether two JSON texts from Task::metadata_json() have the same content. Returns false if `saved`
// is empty.
bool is_same_task(const std::string& saved, const std::string& current) {
  using Json = nlohmann::ordered_json;
  return !saved.empty() && Json::parse(saved) == Json::parse(current);
}

void check_same_data(const TrainingState& state, const std::string& metadata_json,
                     const std::string& folder) {
  if (!metadata_json.empty() && !state.is_converted && !is_same_task(state.task_json, metadata_json))
    throw ConfigError("cannot resume from " + folder +
                      ": the tokenizer, the phones or the statistics of the training data differ");
}

// Logs a warning if the digest of the training data differs from the digest in the checkpoint. Converted
// checkpoints have no digest.
void warn_about_changed_data(const TrainingState& state, const std::string& current,
                             const std::string& folder) {
  const std::string& expected = state.training_data_digest;
  if (expected.empty() || expected == current) return;
  log_warning(folder, ": the training data have changed since this checkpoint: expected ", expected,
              ", found ", current);
}

// Loads the model and the state of the optimizer and of the task, and returns the TrainingState.
TrainingState load_state(const Checkpoint& checkpoint, const Config& config, const Task& task,
                         const TaskDataDescription& data, Optimizer& optimizer) {
  checkpoint.verify_config_checksum();
  const Config saved =
      load_config(checkpoint.config_path(), {}, {.unused_key_policy = UnusedKeyPolicy::ignore_in_file});
  check_resume_config(saved, config, checkpoint.folder());
  TrainingState state = checkpoint.read_state();
  check_same_data(state, data.metadata_json, checkpoint.folder());
  if (state.teacher && data.teacher && *state.teacher != *data.teacher)
    throw ConfigError("cannot resume from " + checkpoint.folder() + ": the weights of distill.teacher, " +
                      config.distill.teacher + ", have changed");
  warn_about_changed_data(state, data.training_digest, checkpoint.folder());
  load_weights(checkpoint, state, config, task.model());
  const NamedTensors training = collect_training_state_tensors(optimizer, task);
  checkpoint.load_optimizer(state.is_converted ? NamedTensors() : training);
  if (state.is_converted) optimizer.reset_averages();
  check_finite(training, checkpoint.folder());
  return state;
}

}  // namespace

std::string get_checked_metadata_json(const Task& task) try {
  return task.metadata_json();
} catch (const nlohmann::json::exception&) {
  throw DataError("a checkpoint cannot describe the training data: a phone is not valid UTF-8");
}

void prepare_new_run(const RunDirectory& directory, const Config& config) {
  directory.require_empty();
  directory.prepare(config, 0, false);
}

std::optional<TrainingState> resume_run(const RunDirectory& directory, const Config& config, const Task& task,
                                        const TaskDataDescription& data, int64_t total_steps,
                                        Optimizer& optimizer) {
  const std::string& run_dir = directory.folder().path();
  if (list_checkpoint_steps(run_dir).empty()) {
    log_info("no checkpoint in ", run_dir, ": starting from the beginning");
    directory.prepare(config, 0, false);
    return std::nullopt;
  }
  const Checkpoint checkpoint(find_checkpoint(run_dir, false));
  const TrainingState state = [&] {
    const std::string advice =
        "; if this checkpoint is damaged, remove it to continue from an earlier one in " +
        std::filesystem::path(checkpoint.folder()).parent_path().string();
    try {
      return load_state(checkpoint, config, task, data, optimizer);
    } catch (const CheckpointError& error) {
      throw CheckpointError(error.what() + advice);
    } catch (const DivergenceError& error) {
      throw DivergenceError(error.what() + advice);
    }
  }();
  optimizer.swap_averaged_weights();
  optimizer.set_step_count(state.optimizer_step_count);
  directory.prepare(config, state.step, state.last_evaluation_step == state.step);
  log_info("resumed from ", checkpoint.folder(), " at step ", state.step, " of ", total_steps);
  return state;
}

}  // namespace tapeformer
