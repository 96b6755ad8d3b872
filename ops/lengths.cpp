#include "ops/lengths.h"

#include "core/base/errors.h"

namespace tapeformer {

Tensor prepare_lengths(const char* op, const char* length_name, const Tensor& lengths, int64_t batch,
                       int64_t longest) {
  if (!lengths.defined()) return Tensor::full({batch}, static_cast<double>(longest), DType::int64);
  check(lengths.shape() == Shape{batch} && lengths.dtype() == DType::int64, op, length_name, "s ",
        lengths.shape(), " of ", name_of(lengths.dtype()), " must be ", Shape{batch}, " of int64");
  const Tensor list = lengths.is_contiguous() ? lengths : lengths.clone();
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = list.data<int64_t>()[b];
    check(length >= 0 && length <= longest, op, length_name, " ", length, " of sequence ", b,
          " is not in [0, ", longest, "]");
  }
  return list;
}

}  // namespace tapeformer
