// Where a tensor lives, and the one place where code branches on it.
#pragma once

#include <string>
#include <utility>

#include "core/dtype.h"
#include "core/errors.h"

namespace tapeformer {

enum class DeviceType : unsigned char { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::cpu; }
  std::string to_string() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
  // "cpu", "cuda", "cuda:N", or "cuda-emulated", the first device of a build that emulates CUDA; throws
  // ConfigError otherwise.
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
// and ConfigError for other text. The emulation of CUDA on the CPU is for tests: only its own name picks it.
DeviceChoice choose_device(const std::string& text);

// The machine whose memory this thread may touch: the CPU, but inside on_device the device of the op. What
// the CUDA backend does without naming a device happens on it.
inline constinit thread_local Device current_device{};

// The op that this thread runs, for messages; empty outside of on_device.
inline constinit thread_local const char* current_op = "";

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

// Runs the kernel of the machine that the device is. Both lambdas ask tensors for their data themselves, so
// that a tensor of another device is an error there. `on_cuda` names functions of the namespace cuda, which a
// build without CUDA does not need.
template <class OnCpu, class OnCuda>
void on_device(Device device, const char* op, OnCpu&& on_cpu, OnCuda&& on_cuda) {
  const DeviceScope scope(device, op);
  if (device.is_cpu())
    std::forward<OnCpu>(on_cpu)();
  else if constexpr (kHasCuda)
    std::forward<OnCuda>(on_cuda)();
  else
    throw DeviceError(concat_text(op, ": this build has no CUDA backend"));
}

// The same for kernels of elements of T. The CPU has none of BFloat16, which it only stores.
template <class T, class OnCpu, class OnCuda>
void on_device_of(Device device, const char* op, OnCpu&& on_cpu, OnCuda&& on_cuda) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    check(!device.is_cpu(), op, "needs float32 or float64 on the CPU, not bfloat16");
    on_device(
        device, op, [] {}, std::forward<OnCuda>(on_cuda));
  } else {
    on_device(device, op, std::forward<OnCpu>(on_cpu), std::forward<OnCuda>(on_cuda));
  }
}

// An op that only the CPU has a kernel for.
template <class OnCpu>
void on_device(Device device, const char* op, OnCpu&& on_cpu) {
  if (!device.is_cpu()) throw DeviceError(concat_text(op, ": no kernel for ", device.to_string()));
  const DeviceScope scope(device, op);
  std::forward<OnCpu>(on_cpu)();
}

}  // namespace tapeformer
