#include "train/bench/device_model.h"

#include <algorithm>

#include "core/errors.h"
#include "train/command_options.h"

namespace tapeformer {
namespace {

// Constants of the time estimates. docs/device-cost.md explains each value.
constexpr double kLaunchSeconds = 2.2e-6;  // time between two kernels in a CUDA graph
constexpr double kWaveSeconds = 1e-6;      // time of one wave of the thread blocks of a kernel
constexpr double kAttainableRate = 0.7;    // share of the peak rate that cuBLAS products attain
// Share of the cycles in which a scheduler issues an instruction.
constexpr double kAttainableIssueRate = 0.7;
constexpr double kAttainableBandwidth = 0.9;  // share of the peak bandwidth that a copy attains
// Number of rows and columns of the tile of a matrix product that one thread block computes.
constexpr int64_t kTileSize = 128;
constexpr int64_t kMinSplitDepth = 1024;   // minimum k of each part of a split-k matrix product
constexpr int64_t kMaxBlocks = 32;         // maximum number of resident blocks per multiprocessor
constexpr int64_t kReservedShared = 1024;  // bytes of shared memory that CUDA reserves for each block

int64_t ceil_div(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Returns the number of waves of a launch: the number of blocks of the launch divided by the number of blocks
// that the device can run at the same time, rounded up.
int64_t count_waves(const cuda::WorkRecord& work, const DeviceModel& device) {
  int64_t resident =
      std::min(kMaxBlocks, device.max_threads_per_multiprocessor / std::max<int64_t>(work.thread_count, 1));
  resident =
      std::min(resident, device.shared_bytes_per_multiprocessor / (work.shared_bytes + kReservedShared));
  return ceil_div(work.block_count, std::max<int64_t>(resident, 1) * device.multiprocessor_count);
}

}  // namespace

double DeviceModel::peak_rate(cuda::OperandType type) const {
  switch (type) {
    case cuda::OperandType::tf32:
      return tf32_rate;
    case cuda::OperandType::bfloat16:
      return bfloat16_rate;
    case cuda::OperandType::float64:
      return float64_rate;
    case cuda::OperandType::float32:
      break;
  }
  return float32_rate;
}

double DeviceModel::issue_rate() const {
  // A multiprocessor has four warp schedulers, and each issues at most one instruction per cycle.
  constexpr double kSchedulers = 4;
  return static_cast<double>(multiprocessor_count) * kSchedulers * clock;
}

const std::vector<DeviceModel>& list_device_models() {
  constexpr int64_t kKiB = 1 << 10, kGB = 1'000'000'000;
  static const auto* const list = new std::vector<DeviceModel>{
      {"h200", "NVIDIA H200 data sheet (SXM); CUDA C++ Programming Guide, compute capability 9.0", 4.8e12,
       67e12, 494.7e12, 989.4e12, 34e12, 1.83e9, 132, 2048, 228 * kKiB, 141 * kGB},
      {"h100", "NVIDIA H100 data sheet (SXM); CUDA C++ Programming Guide, compute capability 9.0", 3.35e12,
       67e12, 494.7e12, 989.4e12, 34e12, 1.83e9, 132, 2048, 228 * kKiB, 80 * kGB},
      {"a100", "NVIDIA A100 data sheet (80 GB SXM); CUDA C++ Programming Guide, compute capability 8.0",
       2.039e12, 19.5e12, 156e12, 312e12, 9.7e12, 1.41e9, 108, 2048, 164 * kKiB, 80 * kGB},
      {"4090", "NVIDIA Ada GPU architecture white paper; CUDA C++ Programming Guide, compute capability 8.9",
       1.008e12, 82.6e12, 82.6e12, 165.2e12, 1.29e12, 2.52e9, 128, 1536, 100 * kKiB, 24 * kGB},
  };
  return *list;
}

const DeviceModel& find_device_model(const std::string& name) {
  std::vector<std::string> names;
  for (const DeviceModel& device : list_device_models()) {
    if (device.name == name) return device;
    names.push_back(device.name);
  }
  throw ConfigError("--device-model: " + describe_unknown_word("device", name, names));
}

int64_t count_gemm_thread_blocks(const cuda::ProductShape& p, const DeviceModel& device) {
  const int64_t tiles = p.count * ceil_div(p.m, kTileSize) * ceil_div(p.n, kTileSize);
  if (!p.can_split_k || tiles >= device.multiprocessor_count) return tiles;
  const int64_t parts = std::min(ceil_div(device.multiprocessor_count, std::max<int64_t>(tiles, 1)),
                                 std::max<int64_t>(p.k / kMinSplitDepth, 1));
  return tiles * parts;
}

double estimate_seconds(const cuda::WorkRecord& work, const DeviceModel& device) {
  double rate = kAttainableRate * device.peak_rate(work.operand_type);
  double wave_seconds = 0;
  if (work.kind == cuda::WorkKind::product) {
    const int64_t blocks = count_gemm_thread_blocks(work.product, device);
    rate *= std::min(1.0, static_cast<double>(blocks) / static_cast<double>(device.multiprocessor_count));
  } else if (work.kind == cuda::WorkKind::kernel) {
    wave_seconds = static_cast<double>(count_waves(work, device)) * kWaveSeconds;
  }
  return std::max({static_cast<double>(work.bytes) / (kAttainableBandwidth * device.memory_bandwidth),
                   rate > 0 ? work.flop / rate : 0,
                   work.warp_instructions / (kAttainableIssueRate * device.issue_rate()), wave_seconds}) +
         kLaunchSeconds;
}

}  // namespace tapeformer
