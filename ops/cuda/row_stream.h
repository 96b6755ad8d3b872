// The operands of an attention kernel that visits the tiles of kTokens rows of two streamed operands, and
// multiplies them by a tile of kTokens rows of up to two kept operands, or by weights. Kernels are templates
// over a kind of stream:
//   SliceStream   loads slices of the operands whenever a product reads them: any kind of tiles and any width
//   TensorStream  multiplies rows of at most kWidth elements on tensor cores. The kept rows stay in
//   registers.
//                 The next tile of the streamed rows is copied while products read the current tile.
// Both have the members of a kind of tiles (tile_product.h) and
//   kColumns      number of columns of a tile of results
//   kScores       number of streamed rows that the backward kernels multiply at a time
//   kBytes        bytes of dynamic shared memory
//   kBlocks       number of resident blocks of a multiprocessor that kernels of few registers allow
#pragma once

#include <type_traits>

#include "core/cuda/async_copy.h"
#include "ops/cuda/tensor_tiles.h"

namespace tapeformer::cuda {

// Rows of two operands. A product of kept rows and streamed rows multiplies operands of the same number.
template <class S>
struct RowPair {
  const PlainRows<S>& first;
  const PlainRows<S>& second;

  template <int kOperand>
  __device__ const PlainRows<S>& rows() const {
    return kOperand == 0 ? first : second;
  }
};

template <class Tiles, int kWidth>
class SliceStream {
 public:
  using Value = typename Tiles::Value;
  using Stored = typename Tiles::Stored;
  static constexpr int kThreads = Tiles::kThreads, kColumns = kWidth, kScores = kTokens;
  static constexpr int kBlocks = std::is_same_v<Tiles, PlainTiles<float>> ? 2 : 1;
  static constexpr size_t kBytes = Tiles::Memory::kBytes;
  template <int kTileRows, int kTileColumns>
  using Tile = typename Tiles::template Tile<kTileRows, kTileColumns>;

  // `kept` is the position of the kept tile, and `column` is the first column of the results.
  __device__ SliceStream(RowPair<Stored> kept_rows, int64_t kept, RowPair<Stored> streamed, int64_t column)
      : kept_rows_(kept_rows), streamed_(streamed), kept_(kept), column_(column) {}

  // Prepares the first kKept kept operands, and the tile at position `first` as the next tile.
  template <int kKept>
  __device__ void start(int64_t first) {
    next_ = first;
  }
  // Makes the next tile the current tile. Tiles that begin after the last row are not loaded. All threads of
  // the block call the function, and it contains a barrier.
  __device__ void advance(int64_t next) {
    __syncthreads();
    current_ = next_;
    next_ = next;
  }
  // Adds the product of the kept rows with the rows of the current tile from row `first`, one row per column.
  template <int kOperand, int kTileColumns>
  __device__ void add_row_products(Tile<kTokens, kTileColumns>& tile, int first) {
    const PlainRows<Stored>& kept = kept_rows_.template rows<kOperand>();
    add_products<Lanes::along_depth, Lanes::along_depth>(
        tile, memory_, kept.width, rows_operand<Lanes::along_depth>(kept, kept_, 0),
        rows_operand<Lanes::along_depth>(streamed_.template rows<kOperand>(), current_ + first, 0));
  }
  // Adds the product of the weights with the rows of the current tile from row `first`, one row per term.
  template <int kOperand, int kTerms>
  __device__ void add_products_of(Tile<kTokens, kWidth>& tile, const Tile<kTokens, kTerms>& weights,
                                  int first) {
    cuda::add_products_of(
        tile, weights, memory_,
        rows_operand<Lanes::along_tile>(streamed_.template rows<kOperand>(), current_ + first, column_));
  }

 private:
  const typename Tiles::Memory memory_;
  RowPair<Stored> kept_rows_, streamed_;
  int64_t kept_, column_, current_ = 0, next_ = 0;
};

template <int kWidth>
class TensorStream {
 public:
  using Value = float;
  using Stored = BFloat16;
  static constexpr int kThreads = kTensorThreads, kColumns = kWidth, kScores = kWidth > 32 ? 16 : 32;
  static constexpr int kBlocks = 4;
  template <int kTileRows, int kTileColumns>
  using Tile = TensorTile<kTileRows, kTileColumns>;

 private:
  // A tile in shared memory as an operand whose rows are columns, or terms, of a product.
  using RowLayout = SliceLayout<Lanes::along_depth, kTokens, kWidth>;
  using TermLayout = SliceLayout<Lanes::along_tile, kWidth, kTokens>;
  static_assert(RowLayout::kStride == TermLayout::kStride);

 public:
  static constexpr size_t kBytes = 4 * RowLayout::kPartStride * sizeof(uint32_t);  // two stages of two tiles

  __device__ TensorStream(RowPair<Stored> kept_rows, int64_t kept, RowPair<Stored> streamed, int64_t)
      : kept_rows_(kept_rows), streamed_(streamed), kept_(kept) {}

  template <int kKept>
  __device__ void start(int64_t first) {
    load(kept_rows_.first, kept_, tile(1, 0));
    if (kKept > 1) load(kept_rows_.second, kept_, tile(1, 1));
    copies_.commit();
    load_stage(first, 0);
    copies_.template wait<1>();
    __syncthreads();
#pragma unroll
    for (int operand = 0; operand < kKept; ++operand)
#pragma unroll
      for (int k = 0; k < kWidth; k += 16)
        fragments_[operand][k / 16] =
            Tile<kTokens, kTokens>::template fragment<RowLayout>(tile(1, operand), k);
  }
  __device__ void advance(int64_t next) {
    copies_.template wait<0>();
    __syncthreads();
    stage_ = 1 - stage_;
    load_stage(next, 1 - stage_);
  }
  template <int kOperand, int kTileColumns>
  __device__ void add_row_products(Tile<kTokens, kTileColumns>& tile, int first) const {
    const uint32_t* const rows = this->tile(stage_, kOperand) + RowLayout::offset(first, 0);
#pragma unroll
    for (int k = 0; k < kWidth; k += 16)
      tile.template add_product<RowLayout>(fragments_[kOperand][k / 16], rows, k);
  }
  template <int kOperand, int kTerms>
  __device__ void add_products_of(Tile<kTokens, kWidth>& tile, const Tile<kTokens, kTerms>& weights,
                                  int first) const {
    const uint32_t* const terms = this->tile(stage_, kOperand) + TermLayout::offset(first, 0);
#pragma unroll
    for (int t = 0; t < kTerms; t += 16)
      tile.template add_product<TermLayout>(weights.left_fragment(t, 0), terms, t);
  }

 private:
  __device__ static uint32_t* tile(int stage, int operand) {
    return dynamic_shared<uint32_t>() + (2 * stage + operand) * RowLayout::kPartStride;
  }
  // Begins to load the streamed rows at `position`. Completes the group of copies.
  __device__ void load_stage(int64_t position, int stage) {
    if (position < streamed_.first.count) {
      load(streamed_.first, position, tile(stage, 0));
      load(streamed_.second, position, tile(stage, 1));
    }
    copies_.commit();
  }
  __device__ void load(const PlainRows<Stored>& rows, int64_t position, uint32_t* target) {
    constexpr int kPack = Pack<Stored>::kSize, kPacks = kWidth / kPack, kStep = kThreads / kPacks;
    const int row = static_cast<int>(threadIdx.x) / kPacks,
              feature = static_cast<int>(threadIdx.x) % kPacks * kPack;
    const int64_t rest = feature < rows.width ? rows.count - position - row : 0;
    const Stored* source = rows.data + (position + row) * rows.stride + feature;
    target += RowLayout::offset(row, feature);
#pragma unroll
    for (int i = 0; i < kTokens; i += kStep, source += kStep * rows.stride)
      copies_.copy(target + RowLayout::offset(i, 0), source, i < rest);
  }

  RowPair<Stored> kept_rows_, streamed_;
  int64_t kept_;
  int stage_ = 1;
  AsyncCopies copies_;
  LeftFragment fragments_[2][kWidth / 16];
};

}  // namespace tapeformer::cuda
