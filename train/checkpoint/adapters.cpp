#include "train/checkpoint/adapters.h"

#include "core/base/errors.h"
#include "models/layers/low_rank.h"
#include "train/build.h"
#include "train/checkpoint/initial_weights.h"
#include "train/finite.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

NamedTensors select_tensors(const Module& model, bool of_adapters) {
  NamedTensors selected;
  for (const auto& [name, tensor] : model.saved_tensors())
    if (is_adapter_tensor(name) == of_adapters) selected.emplace_back(name, tensor);
  return selected;
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "model.safetensors", ignored);
}

}  // namespace

NamedTensors list_stored_tensors(const Config& config, const Module& model) {
  return has_adapters(config) ? select_tensors(model, true) : model.saved_tensors();
}

BaseReference make_base_reference(const Config& config, const fs::path& run_dir) {
  const Checkpoint base(find_initial_checkpoint(config.model.init));
  return {base.folder(), fs::path(base.folder()).lexically_relative(fs::weakly_canonical(run_dir)).string(),
          base.read_model_checksum()};
}

Checkpoint find_base(const Checkpoint& checkpoint, const TrainingState& state) {
  // A checkpoint is RUN/checkpoints/step-….
  const fs::path run_dir = fs::path(checkpoint.folder()).parent_path().parent_path();
  const fs::path beside = (run_dir / state.base->relative_folder).lexically_normal();
  const std::string folder = is_checkpoint(state.base->folder) ? state.base->folder : beside.string();
  if (!is_checkpoint(folder))
    throw CheckpointError(concat_text(checkpoint.folder(), ": the adapters extend the weights of ",
                                      state.base->folder, ", which is neither there nor in ",
                                      beside.string()));
  const Checkpoint base(folder);
  if (base.read_model_checksum() != state.base->checksum)
    throw CheckpointError(
        concat_text(checkpoint.folder(), ": the adapters extend other weights than those in ", folder));
  return base;
}

void load_weights(const Checkpoint& checkpoint, const TrainingState& state, const Config& config,
                  const Module& model) {
  if (has_adapters(config) != state.base.has_value())
    throw CheckpointError(concat_text(
        checkpoint.state_path(), ": base: expected ",
        state.base ? "none, because config.toml has no [lora]" : "the weights that the adapters extend"));
  if (state.base) {
    const Checkpoint base = find_base(checkpoint, state);
    const NamedTensors weights = select_tensors(model, false);
    base.load_model(weights);
    check_finite(weights, base.folder());
  }
  const NamedTensors stored = list_stored_tensors(config, model);
  checkpoint.load_model(stored);
  check_finite(stored, checkpoint.folder());
}

}  // namespace tapeformer
