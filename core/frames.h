// Frames and steps of speech, which data, models and decoding count alike.
#pragma once

#include <cstdint>

namespace tapeformer {

// Steps of a model in which `subsampling` frames make one; frames that do not fill a step are dropped.
constexpr int64_t subsampled_steps(int64_t frames, int64_t subsampling) {
  return frames / subsampling;
}

}  // namespace tapeformer
