#include "ops/random_features.h"

#include <cmath>
#include <vector>

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/gemm.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "random_features";
constexpr const char* kInto = "random_features_into";
constexpr const char* kProjection = "make_random_projection";

// Orthonormalizes the first `count` rows of w (rows, dim) with the Gram–Schmidt process. Each row is
// orthogonalized twice to reduce the rounding errors.
void orthonormalize(double* w, int64_t count, int64_t dim) {
  const auto dot = [dim](const double* a, const double* b) {
    double total = 0;
    for (int64_t j = 0; j < dim; ++j) total += a[j] * b[j];
    return total;
  };
  for (int64_t i = 0; i < count; ++i) {
    double* const row = w + i * dim;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t earlier = 0; earlier < i; ++earlier) {
        const double* const other = w + earlier * dim;
        const double projection = dot(row, other);
        for (int64_t j = 0; j < dim; ++j) row[j] -= projection * other[j];
      }
    const double norm = std::sqrt(dot(row, row));
    for (int64_t j = 0; j < dim; ++j) row[j] /= norm;
  }
}

// Multiplies each orthonormal row of w (count, dim) by the norm of a random vector from N(0, I), so that the
// row is distributed as N(0, I).
void scale_to_normal(double* w, int64_t count, int64_t dim, const RandomStream& stream, int64_t first) {
  for (int64_t i = 0; i < count; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < dim; ++j) {
      const double x = stream.normal(static_cast<uint64_t>(first + i * dim + j));
      squares += x * x;
    }
    for (int64_t j = 0; j < dim; ++j) w[i * dim + j] *= std::sqrt(squares);
  }
}

RandomFeatureShape make_shape(const char* op, const Tensor& x, const Tensor& projection, RandomFeatureMap map,
                              double offset) {
  check(projection.rank() == 2 && projection.is_contiguous() && projection.size(1) == x.size(-1), op,
        "projection ", projection.shape(), " must be (features, ", x.size(-1), "), contiguous");
  check(projection.dtype() == x.dtype() && projection.device() == x.device(), op, "x is ", name_of(x.dtype()),
        " and the projection ", name_of(projection.dtype()), "; both must have one dtype and device");
  RandomFeatureShape s{
      .dim = x.size(-1), .features = projection.size(0), .feature_map = map, .offset = offset};
  check(s.dim > 0 && s.features > 0, op, "projection ", projection.shape(), " must not be empty");
  s.rows = x.numel() / s.dim;
  s.scale = std::pow(static_cast<double>(s.dim), -0.25);
  if (map == RandomFeatureMap::relu) s.scale /= std::sqrt(static_cast<double>(s.features));
  return s;
}

// Writes the features of x, which must be contiguous, to `out`.
void compute_features(const char* op, const RandomFeatureShape& s, const Tensor& x, const Tensor& projection,
                      const Tensor& out) {
  if (s.rows == 0) return;
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    gemm(backend, Gemm<T>{.transpose_b = true,
                          .m = s.rows,
                          .n = s.features,
                          .k = s.dim,
                          .alpha = static_cast<T>(s.scale),
                          .a = x.data<T>(),
                          .lda = s.dim,
                          .b = projection.data<T>(),
                          .ldb = s.dim,
                          .c = out.data<T>(),
                          .ldc = s.features});
    random_features_forward(backend, s, x.data<T>(), out.data<T>());
  });
}

// Returns the gradient of the input x. `y` contains the features of x, and `g` is the gradient of y.
Tensor compute_input_gradient(const RandomFeatureShape& s, const Tensor& x, const Tensor& projection,
                              const Tensor& y, const Tensor& g) {
  const Tensor gx = Tensor::empty_like(x), gu = Tensor::empty_like(y);
  if (s.rows == 0) return gx;
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    random_features_backward(backend, s, x.data<T>(), y.data<T>(), g.data<T>(), gu.data<T>(), gx.data<T>());
    gemm(backend, Gemm<T>{.m = s.rows,
                          .n = s.dim,
                          .k = s.features,
                          .alpha = static_cast<T>(s.scale),
                          .a = gu.data<T>(),
                          .lda = s.features,
                          .b = projection.data<T>(),
                          .ldb = s.dim,
                          .beta = 1,
                          .c = gx.data<T>(),
                          .ldc = s.dim});
  });
  return gx;
}

}  // namespace

Tensor make_random_projection(int64_t dim, const RandomProjectionOptions& options,
                              const RandomStream& stream) {
  check(dim > 0 && options.features > 0, kProjection, options.features, " features of dimension ", dim,
        "; both must be positive");
  check(!options.antithetic || options.features % 2 == 0, kProjection,
        "an antithetic projection needs an even number of features, not ", options.features);
  const Tensor projection = Tensor::empty({options.features, dim}, DType::float64);
  double* const w = projection.data<double>();
  const int64_t drawn = options.antithetic ? options.features / 2 : options.features;
  for (int64_t i = 0; i < drawn * dim; ++i) w[i] = stream.normal(static_cast<uint64_t>(i));
  if (options.orthogonal) {
    for (int64_t row = 0; row < drawn; row += dim)
      orthonormalize(w + row * dim, std::min(dim, drawn - row), dim);
    scale_to_normal(w, drawn, dim, stream, drawn * dim);
  }
  for (int64_t i = drawn * dim; i < options.features * dim; ++i) w[i] = -w[i - drawn * dim];
  return projection;
}

Tensor random_features(const Tensor& input, const Tensor& projection, RandomFeatureMap map, double offset) {
  check_defined(kOp, "x", input, "projection", projection);
  check(input.rank() == 4, kOp, "x ", input.shape(), " must be (batch, length, heads, dim)");
  const RandomFeatureShape s = make_shape(kOp, input, projection, map, offset);
  const Tensor x = make_contiguous(input);
  const Tensor y = Tensor::empty({x.size(0), x.size(1), x.size(2), s.features}, x.dtype(), x.device());
  compute_features(kOp, s, x, projection, y);
  return record(kOp, y, {&input}, [s, x = detach(x), projection, y = detach(y)](const Tensor& g) {
    return Gradients{compute_input_gradient(s, x, projection, y, make_contiguous(g))};
  });
}

void random_features_into(const Tensor& x, const Tensor& projection, RandomFeatureMap map, double offset,
                          const Tensor& out) {
  check_defined(kInto, "x", x, "projection", projection, "out", out);
  check(x.rank() == 3 && x.is_contiguous(), kInto, "x ", x.shape(),
        " must be (batch, heads, dim), contiguous");
  const RandomFeatureShape s = make_shape(kInto, x, projection, map, offset);
  check(out.shape() == Shape{x.size(0), x.size(1), s.features} && out.dtype() == x.dtype() &&
            out.is_contiguous(),
        kInto, "out ", name_of(out.dtype()), " ", out.shape(), " does not fit x ", name_of(x.dtype()), " ",
        x.shape(), " and ", s.features, " features");
  compute_features(kInto, s, x, projection, out);
}

}  // namespace tapeformer
