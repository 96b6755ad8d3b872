#include "ops/kernels/linear_norm.h"

#include "core/base/instances.h"
#include "ops/cuda/tensor_tiles.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

constexpr int kRowsPerTile = 32;      // number of rows of x per block
constexpr int kColumnsPerSlice = 64;  // number of columns of x and w that are in shared memory at a time

// Copies kSize rows and kColumnsPerSlice columns of `matrix` (rows, width) to slice[row][column], beginning
// with row `first` and column `begin` of `matrix`. Elements outside the matrix are set to 0. To hide the
// latency of memory, each thread loads up to eight Packs before the first store.
template <int kSize>
__device__ void copy_slice(uint32_t* slice, const BFloat16* matrix, int64_t rows, int64_t first,
                           int64_t width, int64_t begin) {
  using Packed = Pack<BFloat16>;
  constexpr int kPacksPerRow = kColumnsPerSlice / Packed::kSize,
                kPacks = kPacksPerRow * kSize / kTensorCoreThreads, kLoads = kPacks < 8 ? kPacks : 8;
  static_assert(kPacks % kLoads == 0);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int first_pack = 0; first_pack < kPacks; first_pack += kLoads) {
    Packed packs[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int pack_index = (first_pack + i) * kTensorCoreThreads + thread;
      const int64_t row = first + pack_index / kPacksPerRow,
                    column = begin + pack_index % kPacksPerRow * Packed::kSize;
      packs[i] = row < rows && column < width ? Packed::load(matrix + row * width + column) : Packed{};
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int pack_index = (first_pack + i) * kTensorCoreThreads + thread;
      uint32_t* const row = slice + pack_index / kPacksPerRow * kPaddedLineStride<kColumnsPerSlice>;
      extract_pack_part(packs[i], 0).store(row + pack_index % kPacksPerRow * Packed::kSize / 2);
    }
  }
}

// Replaces sums[i] by the sum over all threads that hold elements of the same row of the tile, in a fixed
// order. `shared` is shared memory for (kWarpsAlongColumns, kRowsPerTile) floats. All threads of the block
// call the function.
template <class Tile>
__device__ void sum_rows(float (&sums)[Tile::kRowsPerThread], float* shared) {
  __syncthreads();  // all threads have read the values of the previous call
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerThread; ++i) {
    for (int bits = 2; bits > 0; bits /= 2) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], bits);
    if (Tile::lane() % 4 == 0)
      shared[Tile::warp() / Tile::kWarpsAlongRows * kRowsPerTile + Tile::row(i)] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerThread; ++i) {
    sums[i] = 0;
    for (int warp = 0; warp < Tile::kWarpsAlongColumns; ++warp)
      sums[i] += shared[warp * kRowsPerTile + Tile::row(i)];
  }
}

// Calls f(i, j, column) for each pair of adjacent elements of the tile, elements[i][j] and elements[i][j +
// 1]. `column` is the column of elements[i][j]. Pairs for which `column` is at least `out` are skipped.
template <class Tile, class F>
__device__ void for_each_pair(int64_t out, F&& f) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerThread; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kColumnsPerThread; j += 2)
      if (const int column = Tile::column(j); column < out) f(i, j, column);
}

// Adds the bias and the residual to the product in `tile`, and writes the layer norm of the sums to n.y and
// n.rounded_y. The first row of the tile belongs to row `first` of x.
template <class Tile>
__device__ void normalize_rows(const LinearNormArguments& n, Tile& tile, int64_t first, float* shared) {
  const int64_t out = n.shape.out;
  const auto row_of = [&](int i) { return first + Tile::row(i); };
  float mean[Tile::kRowsPerThread] = {}, squares[Tile::kRowsPerThread] = {};
  for_each_pair<Tile>(out, [&](int i, int j, int column) {
    float bias[2], residual[2] = {};
    load_group<2>(n.bias + column, bias);
    if (row_of(i) < n.shape.rows) load_group<2>(n.residual + row_of(i) * out + column, residual);
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      tile.elements[i][j + v] += bias[v] + residual[v];
      mean[i] += tile.elements[i][j + v];
    }
  });
  sum_rows<Tile>(mean, shared);
#pragma unroll
  for (int i = 0; i < Tile::kRowsPerThread; ++i) mean[i] /= static_cast<float>(out);
  for_each_pair<Tile>(out, [&](int i, int j, int) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const float difference = tile.elements[i][j + v] - mean[i];
      squares[i] += difference * difference;
    }
  });
  sum_rows<Tile>(squares, shared);
  for_each_pair<Tile>(out, [&](int i, int j, int column) {
    if (row_of(i) >= n.shape.rows) return;
    const float inverse = 1 / std::sqrt(squares[i] / static_cast<float>(out) + static_cast<float>(n.eps));
    float weight[2], bias[2], values[2];
    load_group<2>(n.norm_weight + column, weight);
    load_group<2>(n.norm_bias + column, bias);
#pragma unroll
    for (int v = 0; v < 2; ++v)
      values[v] = (tile.elements[i][j + v] - mean[i]) * inverse * weight[v] + bias[v];
    store_group<2>(n.y + row_of(i) * out + column, values);
    if (n.rounded_y) store_group<2>(n.rounded_y + row_of(i) * out + column, values);
  });
}

// Computes kRowsPerTile complete rows of y per block, because the layer norm needs all columns of a row.
template <int kColumns>
__global__ void __launch_bounds__(kTensorCoreThreads) linear_norm_kernel(LinearNormArguments n) {
  using Tile = TensorCoreTile<kRowsPerTile, kColumns>;
  using LeftLayout = SliceLayout<kAlongDepth, kRowsPerTile, kColumnsPerSlice>;
  using RightLayout = SliceLayout<kAlongDepth, kColumns, kColumnsPerSlice>;
  uint32_t* const left = get_dynamic_shared_memory<uint32_t>();
  uint32_t* const right = left + LeftLayout::kPartStride;
  const int64_t first = int64_t{blockIdx.x} * kRowsPerTile;
  Tile tile;
  for (int64_t begin = 0; begin < n.shape.in; begin += kColumnsPerSlice) {
    __syncthreads();
    copy_slice<kRowsPerTile>(left, n.x, n.shape.rows, first, n.shape.in, begin);
    copy_slice<kColumns>(right, n.w, n.shape.out, 0, n.shape.in, begin);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kColumnsPerSlice; d += 16)
      tile.template add_product<RightLayout>(Tile::template load_fragment<LeftLayout>(left, d), right, d);
  }
  normalize_rows(n, tile, first, reinterpret_cast<float*>(left));
}

template <int kColumns>
void launch_linear_norm(const LinearNormArguments& layer) {
  const LinearShape& shape = layer.shape;
  const size_t shared = (kRowsPerTile + kColumns) * kPaddedLineStride<kColumnsPerSlice> * sizeof(uint32_t);
  const LaunchConfig blocks =
      make_row_launch((shape.rows + kRowsPerTile - 1) / kRowsPerTile, kTensorCoreThreads, shared);
  launch(linear_norm_kernel<kColumns>, blocks, layer);
}

}  // namespace

bool try_linear_norm_forward(Backend, const LinearNormArguments& layer) {
  // kMaxInputs and kMaxOutputs limit the size of the matrix w. Each block reads the whole matrix, so for a
  // larger w, a product of cuBLAS is faster than this kernel.
  constexpr int64_t kMaxInputs = 512, kMaxOutputs = 256, kMaxNarrowOutputs = 128,
                    kPack = Pack<BFloat16>::kSize;
  const LinearShape& shape = layer.shape;
  if (shape.in == 0 || shape.in > kMaxInputs || shape.in % kPack != 0 || shape.out == 0 ||
      shape.out > kMaxOutputs || shape.out % 2 != 0)
    return false;
  if (!are_aligned_to_packs(layer.x, layer.w, layer.bias, layer.residual, layer.norm_weight, layer.norm_bias,
                            layer.y, layer.rounded_y))
    return false;
  if (shape.out <= kMaxNarrowOutputs)
    launch_linear_norm<kMaxNarrowOutputs>(layer);
  else
    launch_linear_norm<kMaxOutputs>(layer);
  return true;
}

}  // namespace tapeformer::cuda
