// The work of a training step or of a decoded token on a CUDA device. An emulated device counts the work
// without computing it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cuda/work_log.h"
#include "train/bench/model_choice.h"

namespace tapeformer {

struct DeviceWork {
  std::vector<cuda::WorkRecord> records;
  int64_t parameters = 0;
  int64_t peak_bytes = 0;  // peak memory of live tensors in bytes

  int64_t launches() const { return static_cast<int64_t>(records.size()); }
  int64_t bytes() const;
  double flop() const;
};

// training_work() returns the work of the second training step. decoding_work() returns the work of decoding
// the second token of every sequence of a batch. The results exclude work that only the first step or token
// requires. A real device also computes the steps. The functions throw OutOfMemory if an emulated device
// needs more than `memory_bytes`, and DeviceError if the device is the CPU.
DeviceWork training_work(const ModelChoice& choice, Device device, int64_t memory_bytes);
DeviceWork decoding_work(const ModelChoice& choice, int64_t batch, Device device, int64_t memory_bytes);

// Returns the first CUDA device, which may be emulated. Throws DeviceError if there is none.
Device counted_device();

}  // namespace tapeformer
