// CUDA graphs. Launches of kernels are recorded once, and one launch of the graph then replays all of them.
// A launch of the graph takes about as much CPU time as a launch of one kernel. This header does not include
// CUDA's headers.
//
// The recorded work must launch the same kernels with the same addresses in each step. Memory that the work
// allocates and releases is reserved for the graph. If the work waits for the device, copies between host
// and device, or measures time, the call throws CudaGraphError with the name of the op. The caller writes the
// inputs of a step, such as a batch, to the same device memory before each launch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/device.h"

namespace tapeformer::cuda {

// A recorded CUDA graph of one device.
class Graph {
 public:
  // Calls `work` and records its launches without running them. Each launch of the graph advances the step
  // counter by steps_per_launch.
  //
  // `work` must have run once before, because the first run loads kernels and selects the algorithms of
  // matrix products. The emulation throws DeviceError for a kernel that has not run before.
  //
  // Each launch of the graph overwrites the tensors that `work` has created. These tensors must not be
  // destroyed between the constructor and the last launch.
  Graph(Device device, int64_t steps_per_launch, const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Launches the graph asynchronously in the stream of the device. `step_offset` is the number of steps since
  // the recording. Kernels add `step_offset` to the steps of random streams and to decoding positions.
  void launch(int64_t step_offset);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tapeformer::cuda
