#include "ops/kernels/reduce.h"

#include <algorithm>
#include <vector>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // minimum number of elements per thread

int64_t choose_grain(int64_t size, int64_t inner) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(size * inner, 1), 1);
}

template <class T>
double sum_row(const T* x, int64_t size) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < size; ++i) total += static_cast<double>(x[i]);
  return total;
}

// Returns the sum of a long vector. The vector is divided into pieces of fixed size, so that the result does
// not depend on the number of threads.
template <class T>
double sum_long(const T* x, int64_t size) {
  const int64_t pieces = (size + kGrain - 1) / kGrain;
  std::vector<double> partial(static_cast<size_t>(pieces));
  parallel_for(pieces, 4, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      partial[static_cast<size_t>(p)] = sum_row(x + p * kGrain, std::min(kGrain, size - p * kGrain));
  });
  return sum_row(partial.data(), pieces);
}

}  // namespace

template <class T>
void sum_middle_dim(Backend, const T* x, T* out, int64_t outer, int64_t size, int64_t inner) {
  if (outer == 1 && inner == 1) {
    *out = static_cast<T>(sum_long(x, size));
    return;
  }
  if (inner == 1) {
    parallel_for(outer, choose_grain(size, 1), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) out[o] = static_cast<T>(sum_row(x + o * size, size));
    });
    return;
  }
  // Each task adds the rows of a strip of at most kColumns columns, from the first row to the last. The
  // result therefore does not depend on the number of threads.
  constexpr int64_t kColumns = 256;
  const int64_t strips = (inner + kColumns - 1) / kColumns;
  parallel_for(outer * strips, choose_grain(size, std::min(inner, kColumns)),
               [&](int64_t begin, int64_t end) {
                 double total[kColumns];
                 for (int64_t strip = begin; strip < end; ++strip) {
                   const int64_t o = strip / strips, first = strip % strips * kColumns;
                   const int64_t count = std::min(kColumns, inner - first);
                   std::fill_n(total, count, 0.0);
                   for (int64_t s = 0; s < size; ++s) {
                     const T* const row = x + (o * size + s) * inner + first;
#pragma omp simd
                     for (int64_t i = 0; i < count; ++i) total[i] += static_cast<double>(row[i]);
                   }
                   for (int64_t i = 0; i < count; ++i) out[o * inner + first + i] = static_cast<T>(total[i]);
                 }
               });
}

template <class T>
void max_middle_dim(Backend, const T* x, T* out, int64_t* index, int64_t outer, int64_t size, int64_t inner) {
  parallel_for(outer, choose_grain(size, inner), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const T* const column = x + o * size * inner + i;
        int64_t best = 0;
        for (int64_t s = 1; s < size; ++s)
          if (is_larger_or_nan(column[s * inner], column[best * inner])) best = s;
        out[o * inner + i] = column[best * inner];
        index[o * inner + i] = best;
      }
  });
}

template <class T>
void scatter_middle_dim(Backend, const T* g, const int64_t* index, T* gx, int64_t outer, int64_t size,
                        int64_t inner) {
  parallel_for(outer, choose_grain(size, inner), [&](int64_t begin, int64_t end) {
    std::fill(gx + begin * size * inner, gx + end * size * inner, T{0});
    for (int64_t o = begin; o < end; ++o)
      for (int64_t i = 0; i < inner; ++i)
        gx[(o * size + index[o * inner + i]) * inner + i] = g[o * inner + i];
  });
}

template <class T>
struct ReduceKernels {
  inline static const FunctionInstances all{&sum_middle_dim<T>, &max_middle_dim<T>, &scatter_middle_dim<T>};
};
template struct ReduceKernels<float>;
template struct ReduceKernels<double>;

}  // namespace tapeformer::cpu
