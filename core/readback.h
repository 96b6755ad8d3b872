// An asynchronous copy of a scalar to the host.
#pragma once

#include <memory>

#include "core/tensor.h"

namespace tapeformer {

namespace cuda {
class DeviceToHostCopy;
}

class Readback {
 public:
  // Starts the copy. Ops that are launched later do not change the copied value. Throws ShapeError if the
  // tensor does not have exactly one element of a floating dtype.
  explicit Readback(const Tensor& scalar);
  // Returns the value of the scalar. Waits for the copy, but not for work that was launched after the copy.
  double value() const;

 private:
  DType dtype_;
  double value_ = 0;                                    // value of the scalar if it is on the CPU, else 0
  std::shared_ptr<const cuda::DeviceToHostCopy> copy_;  // null if the scalar is on the CPU
};

}  // namespace tapeformer
