// Functions that count the time steps of speech models. A speech model combines adjacent feature frames into
// one time step. The CTC loss aligns the labels of a recording with the time steps.
#pragma once

#include <cstdint>
#include <span>

namespace tapeformer {

// Returns the number of steps of a model that combines `subsampling` frames into one step. An incomplete last
// step is dropped.
constexpr int64_t count_subsampled_steps(int64_t frames, int64_t subsampling) {
  return frames / subsampling;
}

// Returns the minimum number of steps that an alignment of `labels` in CTC needs: one step per label, and one
// blank between equal adjacent labels.
constexpr int64_t count_min_ctc_steps(std::span<const int64_t> labels) {
  auto count = static_cast<int64_t>(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) count += labels[i] == labels[i - 1];
  return count;
}

}  // namespace tapeformer
