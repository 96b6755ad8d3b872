// Device is the CPU or a CUDA device. choose_device() selects a device by its name, and run_on_device() calls
// a function with the backend of a device.
#pragma once

#include <string>
#include <utility>

#include "core/base/backends.h"
#include "core/base/errors.h"

namespace tapeformer {

enum class DeviceType : unsigned char { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::cpu; }
  std::string to_string() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
  // Returns the device with the name `text`: "cpu", "cuda" or "cuda:N". "cuda-emulated" is the first device
  // of a build that emulates CUDA. Throws ConfigError for any other text.
  static Device parse(const std::string& text);
};

inline constexpr Device kCpu{};

#ifdef TAPEFORMER_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

// The result of choose_device().
struct DeviceChoice {
  Device device;
  std::string reason;  // reason why "auto" selected the device; empty for a named device
};
// Returns the device with the name `text`, or selects a device if `text` is "auto". The names are "cpu",
// "cuda", "cuda:N" and, for the emulation of CUDA, "cuda-emulated". Throws DeviceError if the named device is
// not available, and ConfigError for any other text.
DeviceChoice choose_device(const std::string& text);

// The device on which this thread runs its op. Without a DeviceScope, the device is the CPU.
inline constinit thread_local Device current_device{};

// Name of the op that this thread runs, for error messages and logs. If the thread runs no op, the name is
// empty.
inline constinit thread_local const char* current_op = "";

// Sets current_device and current_op until the object is destroyed.
class DeviceScope {
 public:
  explicit DeviceScope(Device device, const char* op = current_op)
      : previous_(current_device), previous_op_(current_op) {
    current_device = device;
    current_op = op;
  }
  ~DeviceScope() {
    current_device = previous_;
    current_op = previous_op_;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device previous_;
  const char* previous_op_;
};

// Calls f.operator()<T...>(backend) with the backend of `device`. During the call, current_device is `device`
// and current_op is `op`. Call Tensor::data() inside f, because data() throws ShapeError for tensors that are
// not on current_device. Throws DeviceError if `device` is a CUDA device and the build has no CUDA backend.
template <class... T, class F>
void run_on_device(Device device, const char* op, F&& f) {
  const DeviceScope scope(device, op);
  if (device.is_cpu())
    f.template operator()<T...>(cpu::Backend{});
  else if constexpr (kHasCuda)
    f.template operator()<T...>(cuda::Backend{});
  else
    throw DeviceError(concat_text(op, ": this build has no CUDA backend"));
}

}  // namespace tapeformer
