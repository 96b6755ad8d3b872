// A communicator that uses NCCL for the tensors of one CUDA device per process. The communicator exists only
// in builds with NCCL.
#pragma once

#include <memory>

#include "core/device.h"
#include "train/distributed/communicator.h"

namespace tapeformer {

// Returns a communicator that reduces tensors on `device` with NCCL in a separate CUDA stream, so that a
// reduction overlaps with later launches. CUDA graphs can capture the reductions. `host_communicator` is the
// communicator for tensors in host memory; it also sends the NCCL identifier to all processes. Throws
// DeviceError if NCCL cannot use the device.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> host_communicator,
                                                     Device device);

}  // namespace tapeformer
