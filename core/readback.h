// A number that the host wants to know, but not now: on a device it is copied while both machines go on.
#pragma once

#include <memory>

#include "core/tensor.h"

namespace tapeformer {

namespace cuda {
class HostCopy;
}

class Readback {
 public:
  // A scalar of a floating dtype, which may change as soon as the call returns.
  explicit Readback(const Tensor& scalar);
  // Waits until the device has made the number, not for what was launched after it.
  double value() const;

 private:
  DType dtype_;
  double value_ = 0;                            // of the CPU
  std::shared_ptr<const cuda::HostCopy> copy_;  // null on the CPU
};

}  // namespace tapeformer
