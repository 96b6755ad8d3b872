#include "models/example_model.h"

#include "ops/lengths.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace tapeformer {

Tensor average_valid_rows(const Tensor& x, const Tensor& lengths) {
  if (!lengths.defined()) return mean(x, 1);
  const int64_t batch = x.size(0), length = x.size(1);
  const Tensor valid = prepare_lengths("average_valid_rows", "length", lengths, batch, length);
  const Tensor shares = Tensor::zeros({batch, 1, length}, DType::float64);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < valid.data<int64_t>()[b]; ++i)
      shares.data<double>()[b * length + i] = 1 / static_cast<double>(valid.data<int64_t>()[b]);
  return reshape(matmul(shares.to(x.dtype()).to(x.device()), x), {batch, x.size(2)});
}

}  // namespace tapeformer
