#include "ops/kernels/gemm.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "tests/support/random.h"

using namespace tapeformer;

namespace {

constexpr int64_t kPadding = 3;  // number of elements between two rows of a matrix

template <class T>
std::vector<T> random_elements(int64_t count, int salt) {
  std::vector<T> values;
  for (const double value : test::normal({count}, salt).to_vector()) values.push_back(static_cast<T>(value));
  return values;
}

// Returns the largest error of c = alpha a b + beta c on the CPU. The error of an element is divided by the
// sum of the absolute values of its terms. If beta is 0, c contains NaN before the call. A changed element
// between two rows of c counts as an infinite error.
template <class T>
double gemm_error(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, T alpha, T beta) {
  const int64_t lda = (transpose_a ? m : k) + kPadding, ldb = (transpose_b ? k : n) + kPadding,
                ldc = n + kPadding;
  const std::vector<T> a = random_elements<T>((transpose_a ? k : m) * lda, 1),
                       b = random_elements<T>((transpose_b ? n : k) * ldb, 2),
                       before = random_elements<T>(m * ldc, 3);
  std::vector<T> c = before;
  if (beta == 0)
    for (int64_t i = 0; i < m; ++i) std::fill_n(c.begin() + i * ldc, n, std::numeric_limits<T>::quiet_NaN());
  gemm(cpu::Backend{}, Gemm<T>{.transpose_a = transpose_a,
                               .transpose_b = transpose_b,
                               .m = m,
                               .n = n,
                               .k = k,
                               .alpha = alpha,
                               .a = a.data(),
                               .lda = lda,
                               .b = b.data(),
                               .ldb = ldb,
                               .beta = beta,
                               .c = c.data(),
                               .ldc = ldc});
  const auto element = [](const std::vector<T>& matrix, int64_t row, int64_t column, int64_t stride) {
    return static_cast<double>(matrix[static_cast<size_t>(row * stride + column)]);
  };
  double worst = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      const double found = element(c, i, j, ldc), previous = element(before, i, j, ldc);
      if (j >= n) {
        if (found != previous) worst = std::numeric_limits<double>::infinity();
        continue;
      }
      double sum = static_cast<double>(beta) * previous, magnitude = std::abs(sum) + 1e-30;
      for (int64_t d = 0; d < k; ++d) {
        const double term = static_cast<double>(alpha) *
                            (transpose_a ? element(a, d, i, lda) : element(a, i, d, lda)) *
                            (transpose_b ? element(b, j, d, ldb) : element(b, d, j, ldb));
        sum += term;
        magnitude += std::abs(term);
      }
      worst = test::max_error(worst, std::abs(sum - found) / magnitude);
    }
  return worst;
}

}  // namespace

TEST_CASE("gemm on the CPU equals plain sums for all sizes, transposes, strides and factors") {
  // Products of at least 2^15 multiplications use oneDNN if onednn::is_fastest(DType::float32) is true.
  for (const int64_t m : {1, 31, 70})
    for (const int64_t n : {1, 33, 64})
      for (const int64_t k : {0, 1, 17, 260, 1100})
        for (const bool transpose_a : {false, true})
          for (const bool transpose_b : {false, true})
            for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {1.0, 1.0}, {-0.5, 0.25}}) {
              CAPTURE(m);
              CAPTURE(n);
              CAPTURE(k);
              CAPTURE(transpose_a);
              CAPTURE(transpose_b);
              CAPTURE(beta);
              CHECK(gemm_error<double>(m, n, k, transpose_a, transpose_b, alpha, beta) < 1e-15);
              CHECK(gemm_error<float>(m, n, k, transpose_a, transpose_b, static_cast<float>(alpha),
                                      static_cast<float>(beta)) < 1e-6);
            }
}
