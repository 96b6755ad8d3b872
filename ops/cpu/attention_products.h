// The matrix products of softmax attention, computed one tile of the result at a time. Each class of products
// has the public members of VectorProducts.
//
// Left operands belong to a block of at most kAttentionQueries queries, and right operands to the keys of a
// sequence or to a block of queries. The layouts of a matrix (count, width) are
// - rows: row-major order with the row stride pad_depth(width),
// - panels: the result of pack_rows() in tile_product.h with the depth pad_depth(width),
// - columns: the result of pack_key_columns() or pack_query_columns().
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cpu/bfloat16.h"
#include "ops/cpu/amx_packing.h"
#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// Maximum numbers of queries and keys of a block of scores. kAttentionQueries is a multiple of kRows of each
// class of products, and kAttentionKeys is a multiple of kTileColumns.
inline constexpr int64_t kAttentionQueries = 96;
inline constexpr int64_t kAttentionKeys = kVectorBytes == 64 ? 256 : 240;
// Row stride of a block of scores, in elements. The row stride exceeds kAttentionKeys, because the last tile
// of keys can extend beyond column kAttentionKeys.
inline constexpr int64_t kScoreStride = kAttentionKeys + 32;

// Matrix products with vector instructions. O is the type of the operands.
//
// If O is BFloat16, two elements that are adjacent along the depth are stored as a pair (tile_product.h).
template <class O>
struct VectorProducts {
  using Operand = O;
  using T = Compute<O>;
  // Tiles of scores have kRows queries and kTileColumns keys, and tiles of sums over queries have kRows keys.
  static constexpr int64_t kRows = kTileRows;
  // Ranges of columns of scores begin and end at multiples of kColumnStep.
  static constexpr int64_t kColumnStep = kLanes<T>;

  // Returns the smallest inner dimension of a matrix product that is at least n and that this class supports.
  static constexpr int64_t pad_depth(int64_t n) { return compute_packed_depth<O>(n); }

  // Returns the number of rows, in the layout `rows`, that the products of a block of n queries read or
  // write.
  static constexpr int64_t pad_queries(int64_t n) { return round_up_to_tile_rows(n); }

  // Packs x (count, dim) for add_for_queries(), in panels of `capacity` rows. `stride` is the row stride of x
  // in elements. `capacity` is at least pad_depth(count). If O is float or double, the packed elements are
  // multiplied by `factor`. If O is BFloat16, `factor` is ignored, because multiplication would round the
  // elements.
  template <class X>
  static void pack_key_columns(const X* x, int64_t stride, int64_t count, int64_t dim, T factor,
                               int64_t capacity, O* columns) {
    if constexpr (std::is_same_v<O, BFloat16>)
      pack_columns(x, stride, count, dim, capacity, columns);
    else
      pack_columns(x, stride, count, dim, factor, capacity, columns);
  }
  // Packs a matrix (count, dim) in the layout `rows` for add_for_keys(). Rows [count, pad_queries(count)) of
  // the matrix must be zero.
  static void pack_query_columns(const O* rows, int64_t count, int64_t dim, O* columns) {
    pack_key_columns(rows, pad_depth(dim), count, dim, T{1}, kAttentionQueries, columns);
  }

  // Computes the matrix product scores = rows * panel for rows (kRows, depth) and panel (depth,
  // kTileColumns). The row stride of `scores` is kScoreStride.
  static void compute_scores(const O* rows, const O* panel, int64_t depth, T* scores) {
    compute_tile_product<Left::rows, false>(rows, depth, panel, depth, scores, kScoreStride);
  }

  // Adds the matrix product weights * values to sums (kRows, width), for weights (kRows, depth) and values
  // (depth, width). `weights` has the row stride kScoreStride and must be 0 in the columns [depth,
  // pad_depth(depth)). pack_key_columns() has packed a matrix that contains `values`, with `capacity` rows
  // per panel, and `columns` points to the first row of `values` in the first panel. The index of the first
  // row of `values` in the packed matrix is a multiple of kColumnStep.
  static void add_for_queries(const O* weights, const O* columns, int64_t capacity, int64_t depth,
                              int64_t width, T* sums) {
    for (int64_t m = 0; m < width; m += kTileColumns<T>)
      compute_tile_product<Left::rows, true>(weights, kScoreStride, columns + m * capacity, pad_depth(depth),
                                             sums + m, width);
  }

  // Adds the product of weightsᵀ and x to `sums`, for the queries [first, end) and the kRows keys from column
  // `column` of `weights` on. x is (queries, width) and is packed by pack_query_columns(). The function reads
  // the weights of pad_depth(end - first) queries. Weights of queries from `end` on must be finite, because
  // the function multiplies these weights by zero rows of x. Only read_key_sums() can read `sums`.
  static void add_for_keys(const O* weights, int64_t column, int64_t first, int64_t end, const O* columns,
                           int64_t width, T* sums) {
    // Distance in elements between the weights of two adjacent keys. The distance is 2 for BFloat16, because
    // the weights of two queries for the same key are stored next to each other, and 1 for other types.
    constexpr int64_t kStep = compute_packed_depth<O>(1);
    for (int64_t m = 0; m < width; m += kTileColumns<T>)
      compute_tile_product<Left::columns, true>(weights + first * kScoreStride + kStep * column, kScoreStride,
                                                columns + m * kAttentionQueries + first * kTileColumns<T>,
                                                pad_depth(end - first), sums + m, width);
  }
  // Copies the first `dim` sums of key `key` to `row`. `sums` contains the results of add_for_keys() for all
  // keys of the sequence.
  static void read_key_sums(const T* sums, int64_t key, int64_t width, int64_t dim, T* row) {
    std::copy_n(sums + key * width, dim, row);
  }

  // A ProcessorState object must exist in the calling thread during calls of the product functions.
  struct ProcessorState {};
};

// Matrix products of BFloat16 operands with the tile instructions of AMX. Tiles of scores have 32 queries and
// 32 keys.
struct AmxProducts {
  using Operand = BFloat16;
  using T = float;
  static constexpr bool kIsBuilt = amx::kIsBuilt && kTileColumns<float> == amx::kPanelColumns;
  static constexpr int64_t kRows = amx::kTileDepth;
  static constexpr int64_t kColumnStep = amx::kTileDepth;
  static_assert(kAttentionQueries % kRows == 0 && kAttentionQueries % kTileRows == 0);

  static constexpr int64_t pad_depth(int64_t n) {
    return (n + amx::kTileDepth - 1) / amx::kTileDepth * amx::kTileDepth;
  }

  static constexpr int64_t pad_queries(int64_t) { return kAttentionQueries; }

  template <class X>
  static void pack_key_columns(const X* x, int64_t stride, int64_t count, int64_t dim, float,
                               int64_t capacity, BFloat16* columns) {
    pack_columns(x, stride, count, dim, capacity, columns);
    const int64_t written = compute_packed_depth<BFloat16>(count);
    for (int64_t m = 0; m < dim; m += amx::kPanelColumns)
      std::fill_n(columns + m * capacity + written * amx::kPanelColumns,
                  (capacity - written) * amx::kPanelColumns, BFloat16{});
  }
  static void pack_query_columns(const BFloat16* rows, int64_t, int64_t dim, BFloat16* columns) {
    amx::pack_rows<true>(kAttentionQueries, pad_depth(dim), rows, columns);
  }

  static void compute_scores(const BFloat16* rows, const BFloat16* panel, int64_t depth, float* scores) {
    amx::multiply_block<BFloat16>(amx::make_left_rows(rows, depth),
                                  amx::make_right_pairs(panel, kPanelStride), depth, false, scores,
                                  kScoreStride);
  }
  static void add_for_queries(const BFloat16* weights, const BFloat16* columns, int64_t capacity,
                              int64_t depth, int64_t width, float* sums) {
    for (int64_t m = 0; m < width; m += amx::kPanelColumns)
      amx::multiply_block<BFloat16>(amx::make_left_rows(weights, kScoreStride),
                                    amx::make_right_pairs(columns + m * capacity, kPanelStride),
                                    pad_depth(depth), true, sums + m, width);
  }
  // The sums of 32 keys are stored as (width, 32), because the layout of `weights`, pairs of queries, is the
  // layout of a right operand.
  static void add_for_keys(const BFloat16* weights, int64_t column, int64_t first, int64_t end,
                           const BFloat16* columns, int64_t width, float* sums) {
    for (int64_t m = 0; m < width; m += amx::kTileDepth)
      amx::multiply_block<BFloat16>(
          amx::make_packed_left<BFloat16>(columns + m * kAttentionQueries + first * amx::kPanelColumns),
          amx::make_right_pairs(weights + first * kScoreStride + 2 * column, 2 * kScoreStride),
          pad_depth(end - first), true, sums + m * kRows, kRows);
  }
  static void read_key_sums(const float* sums, int64_t key, int64_t width, int64_t dim, float* row) {
    const float* const tile = sums + key / kRows * kRows * width + key % kRows;
    for (int64_t d = 0; d < dim; ++d) row[d] = tile[d * kRows];
  }

  using ProcessorState = amx::TileRegisters;

 private:
  static constexpr int64_t kPanelStride = 2 * amx::kPanelColumns;  // distance between rows of pairs
};

}  // namespace tapeformer::cpu
