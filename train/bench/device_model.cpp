#include "train/bench/device_model.h"

#include <algorithm>

#include "core/errors.h"
#include "train/command_options.h"

namespace tapeformer {
namespace {

// Assumptions of the model. docs/device-cost.md explains them.
constexpr double kLaunchSeconds = 2.2e-6;     // from the end of a kernel to the start of the next, in a graph
constexpr double kWaveSeconds = 1e-6;         // latency of a block that loads, computes and stores
constexpr double kAttainableRate = 0.7;       // share of the peak rate that library products attain
constexpr double kAttainableBandwidth = 0.9;  // share of the peak bandwidth that a copy attains
// The number of rows and columns of the tile of a product that a thread block computes.
constexpr int64_t kTile = 128;
constexpr int64_t kLeastDepth = 1024;  // minimum length of a part of k, if a product splits k
constexpr int64_t kMaxBlocks = 32;     // maximum number of resident blocks of a multiprocessor

int64_t divided_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// Returns the number of waves of a launch: the number of its blocks divided by the number of blocks that are
// resident on the device at the same time, rounded up.
int64_t waves_of(const cuda::WorkRecord& work, const DeviceModel& device) {
  int64_t resident =
      std::min(kMaxBlocks, device.threads_per_multiprocessor / std::max<int64_t>(work.threads, 1));
  if (work.shared_bytes > 0)
    resident = std::min(resident, device.shared_bytes_per_multiprocessor / work.shared_bytes);
  return divided_up(work.blocks, std::max<int64_t>(resident, 1) * device.multiprocessors);
}

}  // namespace

double DeviceModel::rate(cuda::OperandType type) const {
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

const std::vector<DeviceModel>& device_models() {
  constexpr int64_t kKiB = 1 << 10, kGB = 1'000'000'000;
  static const auto* const list = new std::vector<DeviceModel>{
      {"h200", "NVIDIA H200 data sheet (SXM); CUDA C++ Programming Guide, compute capability 9.0", 4.8e12,
       67e12, 494.7e12, 989.4e12, 34e12, 132, 2048, 228 * kKiB, 141 * kGB},
      {"h100", "NVIDIA H100 data sheet (SXM); CUDA C++ Programming Guide, compute capability 9.0", 3.35e12,
       67e12, 494.7e12, 989.4e12, 34e12, 132, 2048, 228 * kKiB, 80 * kGB},
      {"a100", "NVIDIA A100 data sheet (80 GB SXM); CUDA C++ Programming Guide, compute capability 8.0",
       2.039e12, 19.5e12, 156e12, 312e12, 9.7e12, 108, 2048, 164 * kKiB, 80 * kGB},
      {"4090", "NVIDIA Ada GPU architecture white paper; CUDA C++ Programming Guide, compute capability 8.9",
       1.008e12, 82.6e12, 82.6e12, 165.2e12, 1.29e12, 128, 1536, 100 * kKiB, 24 * kGB},
  };
  return *list;
}

const DeviceModel& device_model(const std::string& name) {
  std::vector<std::string> names;
  for (const DeviceModel& device : device_models()) {
    if (device.name == name) return device;
    names.push_back(device.name);
  }
  throw ConfigError("--device-model: " + unknown_text("device", name, names));
}

int64_t product_blocks(const cuda::ProductShape& p, const DeviceModel& device) {
  const int64_t tiles = p.count * divided_up(p.m, kTile) * divided_up(p.n, kTile);
  if (!p.can_split_k || tiles >= device.multiprocessors) return tiles;
  const int64_t parts = std::min(divided_up(device.multiprocessors, std::max<int64_t>(tiles, 1)),
                                 std::max<int64_t>(p.k / kLeastDepth, 1));
  return tiles * parts;
}

double seconds_of_work(const cuda::WorkRecord& work, const DeviceModel& device) {
  double rate = kAttainableRate * device.rate(work.type);
  double wave_seconds = 0;
  if (work.kind == cuda::WorkKind::product) {
    const int64_t blocks = product_blocks(work.product, device);
    rate *= std::min(1.0, static_cast<double>(blocks) / static_cast<double>(device.multiprocessors));
  } else if (work.kind == cuda::WorkKind::kernel) {
    wave_seconds = static_cast<double>(waves_of(work, device)) * kWaveSeconds;
  }
  return std::max({static_cast<double>(work.bytes) / (kAttainableBandwidth * device.bytes_per_second),
                   rate > 0 ? work.flop / rate : 0, wave_seconds}) +
         kLaunchSeconds;
}

}  // namespace tapeformer
