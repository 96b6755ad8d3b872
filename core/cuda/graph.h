// CUDA graphs: work that is recorded once and then replayed by one launch, which costs the host about as much
// as launching one kernel. This header does not include CUDA's headers.
//
// The recorded work must launch the same kernels on the same memory every time. It may allocate and release
// memory. Waiting for the device, copying between host and device, and measuring time throw GraphError with
// the name of the op. The inputs of a step, such as a batch, are in memory that the caller fills between
// launches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace tapeformer::cuda {

class Graph {
 public:
  // Calls `work` and records its launches without running them. Each launch of the graph advances the step
  // counter by `steps`. `work` must have run once before, because the first run loads kernels, plans matrix
  // products and creates tensors. The emulation throws DeviceError for a kernel that has not run. Tensors
  // that `work` keeps hold the results of the last launch; keep them for as long as the graph is launched.
  Graph(Device device, int64_t steps, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Launches the graph. Adds `step_offset` to the steps of random streams and to the decoding positions of
  // the recorded work. The call is asynchronous, in stream order.
  void launch(int64_t step_offset);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tapeformer::cuda
