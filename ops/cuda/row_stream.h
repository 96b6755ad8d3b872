// Classes that load operands for attention kernels. A thread block loads one tile of kTileTokens rows of each
// resident operand, such as q and g. The thread block then loops over the tiles of the two streamed operands,
// such as k and v.
//
// The template parameter `Stream` of a kernel selects the class:
// - SliceRowStream loads the operands of each product from global memory, in slices of a few columns.
//   SliceRowStream supports rows of any width and all types of tiles (`Tiles` in tile_product.h).
// - TensorCoreRowStream computes products on tensor cores, and supports rows of at most kWidth elements. The
//   tiles of the resident operands stay in registers. The next tiles of the streamed operands are copied to
//   shared memory while products read the current tiles.
//
// Both classes have the members Value, Stored, kThreads and Tile of `Tiles`, and these constants:
//   kColumns             number of columns of a tile of the result
//   kScoreColumns        number of columns of a tile of scores in the backward kernels
//   kSharedMemoryBytes   bytes of dynamic shared memory
//   kMaxResidentBlocks   maximum number of resident blocks per multiprocessor. Kernels that need many
//                        registers have fewer resident blocks.
#pragma once

#include <type_traits>

#include "core/cuda/async_copy.h"
#include "ops/cuda/tensor_tiles.h"

namespace tapeformer::cuda {

// The rows of two operands of a kernel. The template parameter kOperand of this class and of the stream
// classes selects the first operand (0) or the second operand (1).
template <class S>
struct OperandPair {
  const StridedRows<S>& first;
  const StridedRows<S>& second;

  template <int kOperand>
  __device__ const StridedRows<S>& rows() const {
    return kOperand == 0 ? first : second;
  }
};

// Loads the operands of an attention kernel in slices. Each matrix product loads its slices from global
// memory.
template <class Tiles, int kWidth>
class SliceRowStream {
 public:
  using Value = typename Tiles::Value;
  using Stored = typename Tiles::Stored;
  static constexpr int kThreads = Tiles::kThreads, kColumns = kWidth, kScoreColumns = kTileTokens;
  static constexpr int kMaxResidentBlocks = std::is_same_v<Tiles, SimtTiles<float>> ? 2 : 1;
  static constexpr size_t kSharedMemoryBytes = Tiles::Memory::kBytes;
  template <int kTileRows, int kTileColumns>
  using Tile = typename Tiles::template Tile<kTileRows, kTileColumns>;

  // `position` is the first row of the tile of each resident operand. add_tile_product() uses kWidth columns
  // of the streamed operand, beginning with `column`.
  __device__ SliceRowStream(OperandPair<Stored> resident, int64_t position, OperandPair<Stored> streamed,
                            int64_t column)
      : resident_(resident), streamed_(streamed), resident_position_(position), column_(column) {}

  // Makes the streamed tile at row `first` the next tile. TensorCoreRowStream also loads the resident tiles
  // of the first kOperandCount (1 or 2) operands, and starts to load the next tile. All threads of the block
  // must call start_loads().
  template <int kOperandCount>
  __device__ void start_loads(int64_t first) {
    next_position_ = first;
  }
  // Makes the next tile the current tile, and synchronises the block. The streamed tile at row `next`, which
  // can be beyond the last row, becomes the next tile. All threads of the block must call advance().
  __device__ void advance(int64_t next) {
    __syncthreads();
    current_position_ = next_position_;
    next_position_ = next;
  }
  // Adds to element (i, j) of `tile` the dot product of row i of the resident tile and row `first` + j of the
  // current tile.
  template <int kOperand, int kTileColumns>
  __device__ void add_row_products(Tile<kTileTokens, kTileColumns>& tile, int first) {
    const StridedRows<Stored>& rows = resident_.template rows<kOperand>();
    add_products<kAlongDepth, kAlongDepth>(
        tile, memory_, rows.width, make_operand<kAlongDepth>(rows, resident_position_, 0),
        make_operand<kAlongDepth>(streamed_.template rows<kOperand>(), current_position_ + first, 0));
  }
  // Adds the product of `weights` and rows [first, first + kTerms) of the current tile to `tile`.
  template <int kOperand, int kTerms>
  __device__ void add_tile_product(Tile<kTileTokens, kWidth>& tile, const Tile<kTileTokens, kTerms>& weights,
                                   int first) {
    cuda::add_tile_product(
        tile, weights, memory_,
        make_operand<kAlongTile>(streamed_.template rows<kOperand>(), current_position_ + first, column_));
  }

 private:
  const typename Tiles::Memory memory_;
  OperandPair<Stored> resident_, streamed_;
  int64_t resident_position_, column_, current_position_ = 0, next_position_ = 0;
};

// Copies tiles of bfloat16 operands to shared memory, and multiplies the tiles on tensor cores. The functions
// have the same effects as the functions of SliceRowStream.
template <int kWidth>
class TensorCoreRowStream {
 public:
  using Value = float;
  using Stored = BFloat16;
  static constexpr int kThreads = kTensorCoreThreads, kColumns = kWidth,
                       kScoreColumns = kWidth > 32 ? 16 : 32;
  static constexpr int kMaxResidentBlocks = 4;
  template <int kTileRows, int kTileColumns>
  using Tile = TensorCoreTile<kTileRows, kTileColumns>;

 private:
  // Two layouts of the same streamed tile as a right operand. RowLayout is for sums over the columns of the
  // tile, in add_row_products(). TermLayout is for sums over the rows of the tile, in add_tile_product().
  using RowLayout = SliceLayout<kAlongDepth, kTileTokens, kWidth>;
  using TermLayout = SliceLayout<kAlongTile, kWidth, kTileTokens>;
  static_assert(RowLayout::kLineStride == TermLayout::kLineStride);

 public:
  // The dynamic shared memory consists of two stages. Each stage holds one tile of each streamed operand.
  static constexpr size_t kSharedMemoryBytes = 4 * RowLayout::kPartStride * sizeof(uint32_t);

  // The last argument is ignored, because a tile has all columns of the result.
  __device__ TensorCoreRowStream(OperandPair<Stored> resident, int64_t position, OperandPair<Stored> streamed,
                                 int64_t)
      : resident_(resident), streamed_(streamed), resident_position_(position) {}

  template <int kOperandCount>
  __device__ void start_loads(int64_t first) {
    start_row_loads(resident_.first, resident_position_, get_tile_memory(1, 0));
    if (kOperandCount > 1) start_row_loads(resident_.second, resident_position_, get_tile_memory(1, 1));
    copies_.commit();
    start_stage_loads(first, 0);
    copies_.template wait<1>();
    __syncthreads();
#pragma unroll
    for (int operand = 0; operand < kOperandCount; ++operand)
#pragma unroll
      for (int k = 0; k < kWidth; k += 16)
        fragments_[operand][k / 16] =
            Tile<kTileTokens, kTileTokens>::template load_fragment<RowLayout>(get_tile_memory(1, operand), k);
  }
  __device__ void advance(int64_t next) {
    copies_.template wait<0>();
    __syncthreads();
    stage_ = 1 - stage_;
    start_stage_loads(next, 1 - stage_);
  }
  template <int kOperand, int kTileColumns>
  __device__ void add_row_products(Tile<kTileTokens, kTileColumns>& tile, int first) const {
    const uint32_t* const rows = get_tile_memory(stage_, kOperand) + RowLayout::offset(first, 0);
#pragma unroll
    for (int k = 0; k < kWidth; k += 16)
      tile.template add_product<RowLayout>(fragments_[kOperand][k / 16], rows, k);
  }
  template <int kOperand, int kTerms>
  __device__ void add_tile_product(Tile<kTileTokens, kWidth>& tile, const Tile<kTileTokens, kTerms>& weights,
                                   int first) const {
    const uint32_t* const terms = get_tile_memory(stage_, kOperand) + TermLayout::offset(first, 0);
#pragma unroll
    for (int t = 0; t < kTerms; t += 16)
      tile.template add_product<TermLayout>(weights.make_left_fragment(t, 0), terms, t);
  }

 private:
  // Returns the address in shared memory of the tile of an operand (0 or 1) in a stage (0 or 1).
  __device__ static uint32_t* get_tile_memory(int stage, int operand) {
    return get_dynamic_shared_memory<uint32_t>() + (2 * stage + operand) * RowLayout::kPartStride;
  }
  // Starts asynchronous copies of the streamed tile at row `position` to a stage, and commits them as one
  // group. If `position` is beyond the last row, commits an empty group.
  __device__ void start_stage_loads(int64_t position, int stage) {
    if (position < streamed_.first.count) {
      start_row_loads(streamed_.first, position, get_tile_memory(stage, 0));
      start_row_loads(streamed_.second, position, get_tile_memory(stage, 1));
    }
    copies_.commit();
  }
  // Starts asynchronous copies of kTileTokens rows from row `position`. Elements outside of the rows are set
  // to 0.
  __device__ void start_row_loads(const StridedRows<Stored>& rows, int64_t position, uint32_t* target) {
    constexpr int kPackSize = Pack<Stored>::kSize, kPacksPerRow = kWidth / kPackSize,
                  kStep = kThreads / kPacksPerRow;
    const int row = static_cast<int>(threadIdx.x) / kPacksPerRow,
              feature = static_cast<int>(threadIdx.x) % kPacksPerRow * kPackSize;
    const int64_t row_count = feature < rows.width ? rows.count - position - row : 0;
    const Stored* source = rows.data + (position + row) * rows.stride + feature;
    target += RowLayout::offset(row, feature);
#pragma unroll
    for (int i = 0; i < kTileTokens; i += kStep, source += kStep * rows.stride)
      copies_.copy(target + RowLayout::offset(i, 0), source, i < row_count);
  }

  OperandPair<Stored> resident_, streamed_;
  int64_t resident_position_;
  int stage_ = 1;
  AsyncCopies copies_;
  LeftFragment fragments_[2][kWidth / 16];
};

}  // namespace tapeformer::cuda
