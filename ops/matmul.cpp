#include "ops/matmul.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/gemm.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns the leading dimensions of a stack of matrices.
Shape get_batch_shape(const Shape& shape) {
  Shape batch;
  for (int i = 0; i + 2 < shape.rank(); ++i) batch.append(shape[i]);
  return batch;
}

Shape make_matrix_batch_shape(Shape batch, int64_t rows, int64_t columns) {
  batch.append(rows);
  batch.append(columns);
  return batch;
}

// Returns the product of stacks with the same batch shape. The call is not recorded.
Tensor multiply_batches(const Tensor& a_any, const Tensor& b_any, MatmulOptions options) {
  const Tensor a = make_contiguous(a_any), b = make_contiguous(b_any);
  const int64_t m = a.size(options.transpose_a ? -1 : -2), k = a.size(options.transpose_a ? -2 : -1);
  const int64_t n = b.size(options.transpose_b ? -2 : -1);
  const Shape batch = get_batch_shape(a.shape());
  const Tensor out = Tensor::empty(make_matrix_batch_shape(batch, m, n), a.dtype(), a.device());
  dispatch_float_or_double("matmul", a, [&]<class T>(auto backend) {
    const Gemm<T> first{.transpose_a = options.transpose_a,
                        .transpose_b = options.transpose_b,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a = a.data<T>(),
                        .lda = a.size(-1),
                        .b = b.data<T>(),
                        .ldb = b.size(-1),
                        .c = out.data<T>(),
                        .ldc = n};
    batched_gemm(backend, first, batch.numel(), m * k, k * n, m * n);
  });
  return out;
}

}  // namespace

Tensor matmul(const Tensor& a_in, const Tensor& b_in, MatmulOptions options) {
  check_defined("matmul", "a", a_in, "b", b_in);
  check(a_in.rank() >= 2 && b_in.rank() >= 2, "matmul", "needs matrices, not shapes ", a_in.shape(), " and ",
        b_in.shape());
  check(a_in.dtype() == b_in.dtype(), "matmul", "the operands are ", name_of(a_in.dtype()), " and ",
        name_of(b_in.dtype()), ", expected equal dtypes");
  check(a_in.size(options.transpose_a ? -2 : -1) == b_in.size(options.transpose_b ? -1 : -2), "matmul",
        "inner sizes differ: ", a_in.shape(), options.transpose_a ? " transposed" : "", " times ",
        b_in.shape(), options.transpose_b ? " transposed" : "");
  const Shape batch =
      broadcast_shapes("matmul", get_batch_shape(a_in.shape()), get_batch_shape(b_in.shape()));
  const Tensor a = broadcast_to(a_in, make_matrix_batch_shape(batch, a_in.size(-2), a_in.size(-1)));
  const Tensor b = broadcast_to(b_in, make_matrix_batch_shape(batch, b_in.size(-2), b_in.size(-1)));
  const Tensor out = multiply_batches(a, b, options);
  return record(
      "matmul", out, {&a, &b},
      [a = detach(a), b = detach(b), options](const Tensor& g, NeededGradients needs) {
        // The result is G = A B, where A is a or its transpose, and B is b or its transpose. The gradients
        // are dA = G Bᵀ and dB = Aᵀ G for the gradient G of the result. The gradient of a transposed operand
        // is transposed too.
        const bool ta = options.transpose_a, tb = options.transpose_b;
        Gradients gradients(2);
        if (needs[0])
          gradients[0] = ta ? multiply_batches(b, g, {tb, true}) : multiply_batches(g, b, {false, !tb});
        if (needs[1])
          gradients[1] = tb ? multiply_batches(g, a, {true, ta}) : multiply_batches(a, g, {!ta, false});
        return gradients;
      });
}

}  // namespace tapeformer
