// Frames and steps of speech, which data, models and decoding count alike.
#pragma once

#include <cstdint>
#include <span>

namespace tapeformer {

// Steps of a model in which `subsampling` frames make one; frames that do not fill a step are dropped.
constexpr int64_t subsampled_steps(int64_t frames, int64_t subsampling) {
  return frames / subsampling;
}

// Steps that CTC needs for labels: one for each, and a blank between equal neighbours.
constexpr int64_t steps_needed(std::span<const int64_t> labels) {
  auto count = static_cast<int64_t>(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) count += labels[i] == labels[i - 1];
  return count;
}

}  // namespace tapeformer
