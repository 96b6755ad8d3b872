#include "core/device_control.h"

#include <atomic>

#include "core/cuda/precision.h"
#include "core/cuda/transfers.h"

namespace tapeformer {
namespace {

// The functions below cast between Precision and cuda::Precision. core/device_control.h cannot use
// cuda::Precision, because core/cuda/precision.h is not installed.
static_assert(static_cast<int>(Precision::tf32) == static_cast<int>(cuda::Precision::tf32) &&
              static_cast<int>(Precision::bfloat16) == static_cast<int>(cuda::Precision::bfloat16));

std::atomic<Precision> cpu_precision = Precision::float32;

void check_backend(const char* function, Device device) {
  if (!device.is_cpu() && !kHasCuda)
    throw DeviceError(concat_text(function, ": this build has no CUDA backend"));
}

}  // namespace

void synchronize(Device device) {
  check_backend("synchronize", device);
  if constexpr (kHasCuda)
    if (!device.is_cpu()) cuda::synchronize(device);
}

void set_precision(Device device, Precision precision) {
  check_backend("set_precision", device);
  if (device.is_cpu() && precision == Precision::tf32)
    throw DeviceError("set_precision: the CPU has no tf32 products");
  if (device.is_cpu()) cpu_precision = precision;
  if constexpr (kHasCuda)
    if (!device.is_cpu()) cuda::set_precision(device, static_cast<cuda::Precision>(precision));
}

Precision get_precision(Device device) {
  check_backend("precision", device);
  if constexpr (kHasCuda)
    if (!device.is_cpu()) return static_cast<Precision>(cuda::get_precision(device));
  return cpu_precision;
}

}  // namespace tapeformer
