// CPU emulation of CUDA events. The emulation is synchronous, so an event stores the time at which it is
// recorded.
#pragma once

#include <chrono>

#include "core/emulation/runtime.h"
#include "core/emulation/stream_waits.h"

struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
  cudaStream_t stream{};  // in which the event was recorded
};
using cudaEvent_t = EmulatedEvent*;
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2;

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new EmulatedEvent{};
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  tapeformer::cuda::emulation::stream_waits.push_back({event->stream, stream});
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}
