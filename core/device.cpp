#include "core/device.h"

#include <charconv>

namespace tapeformer {

Device Device::parse(const std::string& text) {
  if (text == "cpu") return kCpu;
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 5, last, index);
    if (error == std::errc{} && end == last && index >= 0) return {DeviceType::cuda, index};
  }
  throw ConfigError("device \"" + text + "\" is not one of auto, cpu, cuda, cuda:N");
}

DeviceChoice choose_device(const std::string& text) {
  if (text == "auto") return {kCpu, "this build has no CUDA backend"};
  const Device device = Device::parse(text);
  if (!device.is_cpu())
    throw DeviceError("device " + text + " is not available: this build has no CUDA backend");
  return {device, ""};
}

}  // namespace tapeformer
