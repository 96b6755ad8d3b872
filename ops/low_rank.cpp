#include "ops/low_rank.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/gemm.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "add_low_rank";

// The sizes of the operands. `offsets` has the first column of each term in `low`.
struct Sizes {
  int64_t rows = 0, columns = 0, total_rank = 0;
  std::vector<int64_t> offsets = {};
};

Sizes check_arguments(const Tensor& y, const Tensor& low, const std::vector<LowRankTerm>& terms) {
  check_defined(kOp, "the result of the layers", y, "the product with the first matrices", low);
  check(y.rank() >= 1 && low.rank() == y.rank(), kOp, "sizes ", y.shape(), " and ", low.shape(),
        " must have equal ranks");
  Sizes sizes{.rows = y.numel() / std::max<int64_t>(y.size(-1), 1), .columns = y.size(-1)};
  for (const LowRankTerm& term : terms) {
    check_defined(kOp, "a matrix", term.b);
    check(term.b.rank() == 2 && term.column >= 0 && term.column + term.b.size(0) <= sizes.columns, kOp,
          "matrix ", term.b.shape(), " (out, rank) at column ", term.column, " does not match ", y.shape());
    check(term.b.dtype() == y.dtype() && low.dtype() == y.dtype(), kOp, "operands are ", name_of(y.dtype()),
          ", ", name_of(low.dtype()), " and ", name_of(term.b.dtype()), "; expected equal dtypes");
    sizes.offsets.push_back(sizes.total_rank);
    sizes.total_rank += term.b.size(1);
  }
  Shape expected = y.shape();
  expected[-1] = sizes.total_rank;
  check(low.shape() == expected, kOp, "expected ", expected, " for the ranks of the matrices, got ",
        low.shape());
  return sizes;
}

// Adds scale * low_i b_iᵀ to the columns of y.
void add_products(const Tensor& y, const Tensor& low, const std::vector<LowRankTerm>& terms,
                  const Sizes& sizes, double scale) {
  dispatch_float_or_double(kOp, y, [&]<class T>(auto backend) {
    for (size_t i = 0; i < terms.size(); ++i)
      gemm<T>(backend, {.transpose_b = true,
                        .m = sizes.rows,
                        .n = terms[i].b.size(0),
                        .k = terms[i].b.size(1),
                        .alpha = static_cast<T>(scale),
                        .a = low.data<T>() + sizes.offsets[i],
                        .lda = sizes.total_rank,
                        .b = terms[i].b.data<T>(),
                        .ldb = terms[i].b.size(1),
                        .beta = 1,
                        .c = y.data<T>() + terms[i].column,
                        .ldc = sizes.columns});
  });
}

// Returns the gradient of `low` for the gradient g of the result.
Tensor compute_low_gradient(const Tensor& g, const Tensor& low, const std::vector<LowRankTerm>& terms,
                            const Sizes& sizes, double scale) {
  const Tensor result = Tensor::empty_like(low);
  dispatch_float_or_double(kOp, g, [&]<class T>(auto backend) {
    for (size_t i = 0; i < terms.size(); ++i)
      gemm<T>(backend, {.m = sizes.rows,
                        .n = terms[i].b.size(1),
                        .k = terms[i].b.size(0),
                        .alpha = static_cast<T>(scale),
                        .a = g.data<T>() + terms[i].column,
                        .lda = sizes.columns,
                        .b = terms[i].b.data<T>(),
                        .ldb = terms[i].b.size(1),
                        .c = result.data<T>() + sizes.offsets[i],
                        .ldc = sizes.total_rank});
  });
  return result;
}

// Returns the gradient of the matrix of term i.
Tensor compute_matrix_gradient(const Tensor& g, const Tensor& low, const LowRankTerm& term, int64_t offset,
                               const Sizes& sizes, double scale) {
  const Tensor result = Tensor::empty_like(term.b);
  dispatch_float_or_double(kOp, g, [&]<class T>(auto backend) {
    gemm<T>(backend, {.transpose_a = true,
                      .m = term.b.size(0),
                      .n = term.b.size(1),
                      .k = sizes.rows,
                      .alpha = static_cast<T>(scale),
                      .a = g.data<T>() + term.column,
                      .lda = sizes.columns,
                      .b = low.data<T>() + offset,
                      .ldb = sizes.total_rank,
                      .c = result.data<T>(),
                      .ldc = term.b.size(1)});
  });
  return result;
}

}  // namespace

Tensor add_low_rank(Tensor y, const Tensor& low_any, const std::vector<LowRankTerm>& terms_any,
                    double scale) {
  const Sizes sizes = check_arguments(y, low_any, terms_any);
  const Tensor low = contiguous(low_any);
  std::vector<Tensor> inputs = {y, low};
  std::vector<LowRankTerm> terms;
  for (const LowRankTerm& term : terms_any) {
    inputs.push_back(contiguous(term.b));
    terms.push_back({detach(inputs.back()), term.column});
  }
  // `y` and its copy in `inputs` are the two handles of an unshared tensor.
  const bool is_alone =
      y.use_count() == 2 && y.owns_storage_alone() && y.is_contiguous() && !(requires_grad(y) && is_leaf(y));
  const Tensor result = is_alone ? y.alias() : detach(y).clone();
  add_products(result, detach(low), terms, sizes, scale);
  return record(kOp, result, inputs,
                [low = detach(low), terms, sizes, scale](const Tensor& gradient, NeededGradients needs) {
                  const Tensor g = make_contiguous(gradient);
                  Gradients gradients(2 + terms.size());
                  gradients[0] = gradient;
                  if (needs[1]) gradients[1] = compute_low_gradient(g, low, terms, sizes, scale);
                  for (size_t i = 0; i < terms.size(); ++i)
                    if (needs[static_cast<int>(i + 2)])
                      gradients[i + 2] =
                          compute_matrix_gradient(g, low, terms[i], sizes.offsets[i], sizes, scale);
                  return gradients;
                });
}

}  // namespace tapeformer
