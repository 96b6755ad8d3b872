#include "ops/kernels/token_selection.h"

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
void gather_selected_tokens(Backend, const TokenSelection& s, const T* x, const Compute<T>* weights, T* y) {
  const int64_t rows = s.batch * s.clusters * s.count;
  parallel_for(rows, choose_rows_per_range(s.heads * s.dim), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t b = row / (s.clusters * s.count), slot = row % (s.clusters * s.count);
        const int64_t token = s.positions[(b * s.heads + h) * s.clusters * s.count + slot];
        const int64_t from = (b * s.length + token) * s.heads + h;
        T* const to = y + (row * s.heads + h) * s.dim;
        const T* const source = x + from * s.dim;
        if (!weights) {
          std::copy_n(source, s.dim, to);
          continue;
        }
        for (int64_t d = 0; d < s.dim; ++d)
          to[d] = static_cast<T>(static_cast<Compute<T>>(source[d]) * weights[from]);
      }
  });
}

template <class T>
void scatter_add_selected_tokens(Backend, const TokenSelection& s, const T* x, Compute<T>* weights, T* y) {
  parallel_for(s.batch * s.length, choose_rows_per_range(s.heads * s.dim), [&](int64_t begin, int64_t end) {
    std::vector<Compute<T>> sums(static_cast<size_t>(s.dim));
    for (int64_t row = begin; row < end; ++row)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t b = row / s.length, to = row * s.heads + h;
        std::fill(sums.begin(), sums.end(), Compute<T>{0});
        int64_t found = 0;
        for (int64_t c = 0; c < s.clusters; ++c) {
          const int64_t slot = s.find(b * s.heads + h, c, row % s.length);
          if (slot < 0) continue;
          ++found;
          const T* const source = x + (((b * s.clusters + c) * s.count + slot) * s.heads + h) * s.dim;
          for (int64_t d = 0; d < s.dim; ++d)
            sums[static_cast<size_t>(d)] += static_cast<Compute<T>>(source[d]);
        }
        const Compute<T> inverse = found > 0 ? 1 / static_cast<Compute<T>>(found) : Compute<T>{0};
        if (weights) weights[to] = inverse;
        for (int64_t d = 0; d < s.dim; ++d)
          y[to * s.dim + d] =
              static_cast<T>(weights ? sums[static_cast<size_t>(d)] * inverse : sums[static_cast<size_t>(d)]);
      }
  });
}

template <class T>
struct SelectionKernels {
  inline static const FunctionInstances all{&gather_selected_tokens<T>, &scatter_add_selected_tokens<T>};
};
template struct SelectionKernels<float>;
template struct SelectionKernels<double>;
template struct SelectionKernels<BFloat16>;
template <class T>
struct LargestKernels {
  inline static const FunctionInstances all{&select_top_k<T>};
};
template struct LargestKernels<float>;
template struct LargestKernels<double>;

}  // namespace tapeformer::cpu
