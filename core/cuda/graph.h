// Work of a device that is recorded once and repeated, as a CUDA graph: launching all of it costs the host
// about as much as launching one kernel. Without CUDA's headers.
//
// What is recorded must launch the same kernels on the same memory every time. It may take memory and give it
// back, but must not wait for the device, copy between the machines or measure time: those throw DeviceError
// with the name of the op. What belongs to a step, such as a batch, lies in memory that the caller fills
// between the launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace tapeformer::cuda {

class Graph {
 public:
  // Calls `work`, whose launches on the device are recorded and not done. `steps` of what it counts pass from
  // one launch to the next. Everything that `work` makes for the first time (plans of products, tensors kept
  // for later) must be there already, kernels included, which CUDA may load when they are first launched: so
  // it must have run once, and the emulation throws DeviceError for a kernel that has not. Tensors that it
  // leaves behind hold what the last launch computed, and must be kept as long as there are launches.
  Graph(Device device, int64_t steps, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Does the work as it would be done `later` steps after the recording: the steps of random streams and the
  // positions of decoding are those of the recording and so many more. Does not wait; in order with other
  // work of the device.
  void launch(int64_t later);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tapeformer::cuda
