// Where a tensor lives, and the one place where code branches on it.
#pragma once

#include <string>
#include <utility>

#include "core/errors.h"

namespace tapeformer {

enum class DeviceType : unsigned char { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::cpu; }
  std::string to_string() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
  // "cpu", "cuda" or "cuda:N"; throws ConfigError otherwise.
  static Device parse(const std::string& text);
};

inline constexpr Device kCpu{};

#ifdef TAPEFORMER_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

// What a user's choice of device comes to.
struct DeviceChoice {
  Device device;
  std::string reason;  // why "auto" took it; empty when the device was named
};
// "auto", or a device by name. Throws DeviceError for a device that is not there (never another in its place)
// and ConfigError for other text.
DeviceChoice choose_device(const std::string& text);

// Runs the CPU kernel of an op; the device decides. An op without a kernel for a device says so.
template <class OnCpu>
void on_device(Device device, const char* op, OnCpu&& on_cpu) {
  if (!device.is_cpu()) throw DeviceError(concat_text(op, ": no kernel for ", device.to_string()));
  std::forward<OnCpu>(on_cpu)();
}

}  // namespace tapeformer
