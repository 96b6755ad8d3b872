// Events of the CUDA runtime, for which there is never anything to wait in the emulation.
#pragma once

#include "core/cuda/emulation/runtime.h"

using cudaEvent_t = struct EmulatedEvent*;
inline constexpr unsigned cudaEventDisableTiming = 2;

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
