// The memory accesses of the kernels of a training step or of a decoded token, in the emulation of CUDA. The
// emulation executes the kernels on the CPU, which is slow, so models must be small.
#pragma once

#include <map>

#include "core/access_log.h"
#include "train/bench/device_cost.h"

namespace tapeformer {

using AccessesByLaunch = std::map<LaunchKey, LaunchSiteCounts>;

// Return the memory accesses of a step for each kernel launch. count_training_accesses() measures the second
// training step, and count_decoding_accesses() measures the decoding of the second token of each sequence.
// Both functions throw DeviceError if the program was compiled without the counting of accesses
// (core/access_log.h), or if the device is the CPU.
AccessesByLaunch count_training_accesses(const BenchmarkedModel& choice, Device device);
AccessesByLaunch count_decoding_accesses(const BenchmarkedModel& choice, int64_t batch, Device device);

}  // namespace tapeformer
