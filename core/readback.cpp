#include "core/readback.h"

#include <cstring>

#include "core/cuda/transfers.h"

namespace tapeformer {

Readback::Readback(const Tensor& scalar) : dtype_(scalar.dtype()) {
  check(scalar.numel() == 1 && is_floating(dtype_), "Readback", "needs one floating number, not ",
        scalar.shape(), " of ", name_of(dtype_));
  if (scalar.device().is_cpu()) {
    value_ = scalar.item();
  } else if constexpr (kHasCuda) {
    const DeviceScope scope(scalar.device(), "Readback");
    copy_ = std::make_shared<const cuda::DeviceToHostCopy>(scalar.raw_data(), scalar.bytes());
  }
}

double Readback::value() const {
  if constexpr (kHasCuda)
    if (copy_) {
      const void* const element = copy_->wait();
      return visit_dtype(dtype_, [&](auto tag) {
        std::memcpy(&tag, element, sizeof(tag));
        return convert_element<double>(tag);
      });
    }
  return value_;
}

}  // namespace tapeformer
