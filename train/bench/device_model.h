// A model of the time that a CUDA device takes for logged work (core/cuda/work_log.h). docs/device-cost.md
// states the assumptions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cuda/work_log.h"

namespace tapeformer {

// Rates and sizes of a CUDA device, from the documents that `source` names.
struct DeviceModel {
  std::string name;         // value of --device-model
  std::string source;       // documents that state the values below
  double memory_bandwidth;  // bytes per second
  // Peak floating-point operations per second without structured sparsity. float32_rate and float64_rate do
  // not use tensor cores.
  double float32_rate, tf32_rate, bfloat16_rate, float64_rate;
  double clock;  // boost clock in hertz; tf32_rate and bfloat16_rate hold at this clock
  int64_t multiprocessor_count;
  int64_t max_threads_per_multiprocessor, shared_bytes_per_multiprocessor;
  int64_t memory_bytes;

  double peak_rate(cuda::OperandType type) const;
  // Returns the peak number of warp instructions per second that the device can issue.
  double issue_rate() const;
};

// Returns all devices for which estimate_seconds() can estimate the time of a launch.
const std::vector<DeviceModel>& list_device_models();
// Returns the device model with the name `name`. If no model has this name, throws a ConfigError that
// suggests a similar name or lists all names.
const DeviceModel& find_device_model(const std::string& name);

// Returns the number of thread blocks of a matrix product: the number of tiles of the result times the number
// of parts into which k is split.
int64_t count_gemm_thread_blocks(const cuda::ProductShape& product, const DeviceModel& device);
// Returns the estimated run time of a launch in seconds, including the gap before the next launch.
double estimate_seconds(const cuda::WorkRecord& work, const DeviceModel& device);

}  // namespace tapeformer
