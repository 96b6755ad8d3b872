// The waits of streams for other streams in the emulation of CUDA, where all work runs in the order of its
// launches. Tests check the waits.
#pragma once

#include <vector>

namespace tapeformer::cuda::emulation {

struct StreamWait {
  const void* earlier;  // stream in which the event was recorded
  const void* later;    // stream that waits for the event
};
// The calls of cudaStreamWaitEvent() by this thread.
inline thread_local std::vector<StreamWait> stream_waits;

}  // namespace tapeformer::cuda::emulation
