#include "ops/kernels/top_positions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

// Returns whether element `a` of a row is before element `b` in decreasing order. NaN is first. Equal
// elements are in order of position.
template <class T>
bool precedes(const T* row, int64_t a, int64_t b) {
  const bool nan_a = std::isnan(row[a]), nan_b = std::isnan(row[b]);
  if (nan_a != nan_b) return nan_a;
  return !nan_a && row[a] != row[b] ? row[a] > row[b] : a < b;
}

int64_t choose_rows_per_range(int64_t width) {
  return std::max<int64_t>((1 << 13) / std::max<int64_t>(width, 1), 1);
}

}  // namespace

template <class T>
void select_top_k(Backend, const T* x, int64_t rows, int64_t length, int64_t count, int64_t* positions) {
  parallel_for(rows, choose_rows_per_range(length), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    for (int64_t r = begin; r < end; ++r) {
      const T* const row = x + r * length;
      std::iota(order.begin(), order.end(), 0);
      const auto last = order.begin() + count;
      std::nth_element(order.begin(), last - 1, order.end(),
                       [row](int64_t a, int64_t b) { return precedes(row, a, b); });
      std::sort(order.begin(), last);
      std::copy(order.begin(), last, positions + r * count);
    }
  });
}

template <class T>
struct LargestKernels {
  inline static const FunctionInstances all{&select_top_k<T>};
};
template struct LargestKernels<float>;
template struct LargestKernels<double>;

}  // namespace tapeformer::cpu
