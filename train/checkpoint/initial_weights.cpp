#include "train/checkpoint/initial_weights.h"

#include "core/base/errors.h"
#include "core/system/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/earlier_checkpoint.h"
#include "train/finite.h"

namespace tapeformer {
namespace {

constexpr const char* kKey = "model.init: ";

std::string find_checkpoint_folder(const std::string& path) try {
  return find_checkpoint(path, false);
} catch (const CheckpointError& error) {
  throw ConfigError(kKey + std::string(error.what()));
}

void check_weights(const Checkpoint& checkpoint, const NamedTensorList& expected) {
  const SafetensorsFile file = checkpoint.open_model_file();
  try {
    file.check_tensors(expected);
  } catch (const CheckpointError& error) {
    throw ConfigError(kKey + std::string(error.what()));
  }
}

}  // namespace

void load_initial_weights(const std::string& path, const Module& model) {
  const Checkpoint checkpoint(find_checkpoint_folder(path));
  const NamedTensors tensors = model.saved_tensors();
  load_or_name_earlier(checkpoint.folder(), CheckpointUse::inference, [&] {
    check_weights(checkpoint, tensors);
    checkpoint.load_model(tensors);
    check_finite(tensors, kKey + checkpoint.folder());
  });
  log_info("weights initialised from ", checkpoint.folder());
}

}  // namespace tapeformer
