// Functions that apply the feature maps of linear attention to rows of queries and keys, and that compute the
// gradients of these rows. The features are stored in panels (ops/cpu/outer_product_scan.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/vector_math.h"
#include "ops/cpu/outer_product_scan.h"
#include "ops/kernels/feature_map_functions.h"

namespace tapeformer::cpu {

// Rows of a sequence, one for each token and each of several heads. Loops over the rows process all heads of
// a token before the next token, because the heads of a token are usually adjacent in memory.
template <class T>
struct TokenRows {
  T* data = nullptr;
  int64_t token_stride = 0, head_stride = 0, heads = 0, dim = 0;

  T* row(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

// Calls f(vector, head, token, panel_index, elements) for each vector of the first `count` tokens.
// `panel_index` is the index of the vector in the panels of its head, and `elements` is the number of
// elements in the vector. f must be always_inline, so that `elements` is a constant for whole vectors and f
// needs no masked loads and stores.
template <class T, class F>
[[gnu::always_inline]] inline void for_each_vector(TokenRows<T> rows, int64_t count, F f) {
  using S = std::remove_const_t<T>;
  // Rows are prefetched with instructions, because hardware prefetchers do not load rows that are not
  // adjacent in memory. If q, k and v are slices of one tensor, the rows of adjacent tokens are not adjacent.
  constexpr int64_t kPrefetchDistance = 4;  // in tokens
  constexpr int64_t kVectorElements = kLanes<S>, kPanelElements = kPanelWidth<Compute<S>>;
  for (int64_t t = 0; t < count; ++t)
    for (int64_t head = 0; head < rows.heads; ++head) {
      T* row = rows.row(t, head);
      int64_t panel_index = t * kPanelElements, remaining = rows.dim;
      for (; remaining >= kPanelElements;
           remaining -= kPanelElements, row += kPanelElements, panel_index += kPanelElements * kChunkTokens) {
        prefetch_row(row + kPrefetchDistance * rows.token_stride, kPanelElements);
        f(row, head, t, panel_index, kVectorElements);
        f(row + kVectorElements, head, t, panel_index + kVectorElements, kVectorElements);
      }
      if (remaining >= kVectorElements) {
        f(row, head, t, panel_index, kVectorElements);
        remaining -= kVectorElements;
        row += kVectorElements;
        panel_index += kVectorElements;
      }
      if (remaining > 0) f(row, head, t, panel_index, remaining);
    }
}

// Computes panels = phi(x), padded with zeros to whole vectors.
template <class S, class T>
void apply_feature_map(FeatureMap map, TokenRows<const S> x, int64_t count, T* panels) {
  const int64_t size = compute_panel_size<T>(x.dim);
  visit_feature_map(map, [=](auto phi) {
    for_each_vector(
        x, count,
        [=](const S* row, int64_t head, int64_t, int64_t panel_index, int64_t remaining)
            __attribute__((always_inline)) {
              store(panels + head * size + panel_index,
                    keep_first<T>(phi.template value<VectorMath>(load_first(row, remaining)), remaining));
            });
  });
}

// Computes gx = g phi'(x). `features` holds phi(x), and g the gradient of phi(x), both in panels.
template <class S, class T>
void compute_feature_gradients(FeatureMap map, const T* features, const T* g, int64_t count,
                               TokenRows<S> gx) {
  const int64_t size = compute_panel_size<T>(gx.dim);
  visit_feature_map(map, [=](auto phi) {
    for_each_vector(
        gx, count,
        [=](S * row, int64_t head, int64_t, int64_t panel_index,
            int64_t remaining) __attribute__((always_inline)) {
          const Vector<T> y = load(features + head * size + panel_index);
          store_first<S>(row, load(g + head * size + panel_index) * phi.template derivative<VectorMath>(y, y),
                         remaining);
        });
  });
}

}  // namespace tapeformer::cpu
