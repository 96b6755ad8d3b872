#include "train/loop/checkpoint_writer.h"

#include <exception>
#include <map>

#include "core/base/errors.h"
#include "train/checkpoint/adapters.h"

namespace tapeformer {
namespace {

std::map<std::string, Tensor> map_by_name(const NamedTensors& list) {
  return {list.begin(), list.end()};
}

}  // namespace

NamedTensors collect_training_state_tensors(const Optimizer& optimizer, const Task& task) {
  NamedTensors tensors = optimizer.state();
  for (const auto& [name, tensor] : task.state()) tensors.emplace_back("state." + name, tensor);
  return tensors;
}

CheckpointWriter::CheckpointWriter(std::filesystem::path run_dir, const Config& config, const Task& task,
                                   Optimizer& optimizer)
    : run_dir_(run_dir.string()),
      config_toml_(to_toml(config)),
      keep_last_(config.train.keep_last),
      task_(task),
      optimizer_(optimizer) {}

void CheckpointWriter::prune_old_checkpoints() const {
  prune_checkpoints(run_dir_, keep_last_);
}

bool CheckpointWriter::save(const TrainingState& state, bool must_succeed, const WarningFunction& warn) {
  optimizer_.swap_averaged_weights();
  std::exception_ptr failure;
  std::string text;
  try {
    save_checkpoint(run_dir_,
                    {map_by_name(list_stored_tensors(task_.config(), task_.model())),
                     map_by_name(collect_training_state_tensors(optimizer_, task_)), state, config_toml_});
  } catch (const CheckpointError& error) {
    failure = std::current_exception();
    text = error.what();
  }
  optimizer_.swap_averaged_weights();
  if (failure && must_succeed) std::rethrow_exception(failure);
  if (failure) {
    warn(text);
    return false;
  }
  try {
    prune_old_checkpoints();
  } catch (const CheckpointError& error) {
    warn(error.what());
  }
  return true;
}

void CheckpointWriter::record_evaluation(const TrainingState& state, bool is_best,
                                         const WarningFunction& warn) {
  try {
    replace_checkpoint_state(run_dir_, state);
    if (!is_best) return;
    mark_best_checkpoint(run_dir_, state.step);
    prune_old_checkpoints();
  } catch (const CheckpointError& error) {
    warn(error.what());
  }
}

}  // namespace tapeformer
