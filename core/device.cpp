#include "core/device.h"

#include <charconv>

#include "core/cuda/devices.h"

namespace tapeformer {

Device Device::parse(const std::string& text) {
  if (text == "cpu") return kCpu;
  if (text == "cuda" || text == "cuda-emulated") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 5, last, index);
    if (error == std::errc{} && end == last && index >= 0) return {DeviceType::cuda, index};
  }
  throw ConfigError("device \"" + text + "\" is not one of auto, cpu, cuda, cuda:N");
}

namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& reason) {
  throw DeviceError("device " + text + " is not available: " + reason);
}

}  // namespace

DeviceChoice choose_device(const std::string& text) {
  const Device device = text == "auto" ? kCpu : Device::parse(text);
  if constexpr (!kHasCuda) {
    if (!device.is_cpu()) refuse(text, "this build has no CUDA backend");
    return {kCpu, text == "auto" ? "this build has no CUDA backend" : ""};
  } else {
    const bool emulated = cuda::is_emulated();
    if (text == "auto") {
      if (emulated) return {kCpu, "this build has no CUDA backend, only its emulation for tests"};
      if (const std::string problem = cuda::find_device_problem(0); !problem.empty()) return {kCpu, problem};
      return {{DeviceType::cuda, 0}, cuda::list_devices()[0].name};
    }
    if (device.is_cpu()) return {device, ""};
    if (emulated != (text == "cuda-emulated"))
      refuse(text, emulated ? "this build has no CUDA backend, only its emulation for tests (cuda-emulated)"
                            : "this build has the CUDA backend itself, not its emulation");
    if (const std::string problem = cuda::find_device_problem(device.index); !problem.empty())
      refuse(text, problem);
    return {device, ""};
  }
}

}  // namespace tapeformer
