// Advice for users whose checkpoint is damaged: the newest intact checkpoint of the same run.
#pragma once

#include <string>

#include "core/base/errors.h"

namespace tapeformer {

enum class CheckpointUse { inference, resume };

// Returns text that continues an error message about the checkpoint in `folder`: the path of the newest
// intact checkpoint before it in the same run directory and, for a resume, how to continue from it. A
// checkpoint is intact if its files match their checksums and all elements of its tensors are finite. Returns
// "" if there is no such checkpoint, or if the checkpoint in `folder` is intact and the error has another
// cause. Reads whole checkpoints.
std::string describe_earlier_checkpoint(const std::string& folder, CheckpointUse use);

// Returns load(). Appends describe_earlier_checkpoint() to the message of a CheckpointError or a
// DivergenceError that load() throws.
template <class Load>
auto load_or_name_earlier(const std::string& folder, CheckpointUse use, Load&& load) {
  try {
    return load();
  } catch (const CheckpointError& error) {
    throw CheckpointError(error.what() + describe_earlier_checkpoint(folder, use));
  } catch (const DivergenceError& error) {
    throw DivergenceError(error.what() + describe_earlier_checkpoint(folder, use));
  }
}

}  // namespace tapeformer
