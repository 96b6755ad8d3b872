#include "ops/kernels/linear_norm.h"

#include "core/instances.h"
#include "ops/cuda/tensor_tiles.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

constexpr int kNormRows = 32;   // rows of x per block
constexpr int kNormDepth = 64;  // columns of x and w in shared memory

// Copies columns [begin, begin + kNormDepth) of kSize rows of a matrix (rows, width), from row `first`, to
// slice[row][column]. Elements outside of the matrix are 0. Each thread loads up to eight Packs before it
// stores the first, which hides the latency of memory.
template <int kSize>
__device__ void copy_rows(uint32_t* slice, const BFloat16* matrix, int64_t rows, int64_t first, int64_t width,
                          int64_t begin) {
  using Packed = Pack<BFloat16>;
  constexpr int kPacksOfRow = kNormDepth / Packed::kSize, kPacks = kPacksOfRow * kSize / kTensorThreads,
                kLoads = kPacks < 8 ? kPacks : 8;
  static_assert(kPacks % kLoads == 0);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int done = 0; done < kPacks; done += kLoads) {
    Packed packs[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int item = (done + i) * kTensorThreads + thread;
      const int64_t row = first + item / kPacksOfRow, column = begin + item % kPacksOfRow * Packed::kSize;
      packs[i] = row < rows && column < width ? Packed::load(matrix + row * width + column) : Packed{};
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int item = (done + i) * kTensorThreads + thread;
      uint32_t* const row = slice + item / kPacksOfRow * kPairStride<kNormDepth>;
      part_of_pack(packs[i], 0).store(row + item % kPacksOfRow * Packed::kSize / 2);
    }
  }
}

// Adds the values of the threads that share a row of the tile, in a fixed order. `shared` has space for
// (kWarpColumns, kNormRows).
template <class Tile>
__device__ void sum_over_rows(float (&sums)[Tile::kRowsEach], float* shared) {
  __syncthreads();  // all threads have read the values of the previous call
#pragma unroll
  for (int i = 0; i < Tile::kRowsEach; ++i) {
    for (int bits = 2; bits > 0; bits /= 2) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], bits);
    if (Tile::lane() % 4 == 0) shared[Tile::warp() / Tile::kWarpRows * kNormRows + Tile::row(i)] = sums[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Tile::kRowsEach; ++i) {
    sums[i] = 0;
    for (int warp = 0; warp < Tile::kWarpColumns; ++warp) sums[i] += shared[warp * kNormRows + Tile::row(i)];
  }
}

// Calls f(i, j, column) for the pairs of adjacent elements of the tile, which are elements[i][j] and
// elements[i][j + 1], in columns below `out`.
template <class Tile, class F>
__device__ void for_each_pair(int64_t out, F&& f) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsEach; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kColumnsEach; j += 2)
      if (const int column = Tile::column(j); column < out) f(i, j, column);
}

// Replaces the product in the tile by its layer norm with the residual, and writes it.
template <class Tile>
__device__ void finish_rows(const LinearNorm& n, Tile& tile, int64_t first, float* shared) {
  const int64_t out = n.shape.out;
  const auto row_of = [&](int i) { return first + Tile::row(i); };
  float mean[Tile::kRowsEach] = {}, squares[Tile::kRowsEach] = {};
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
  sum_over_rows<Tile>(mean, shared);
#pragma unroll
  for (int i = 0; i < Tile::kRowsEach; ++i) mean[i] /= static_cast<float>(out);
  for_each_pair<Tile>(out, [&](int i, int j, int) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const float distance = tile.elements[i][j + v] - mean[i];
      squares[i] += distance * distance;
    }
  });
  sum_over_rows<Tile>(squares, shared);
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
    if (n.rounded) store_group<2>(n.rounded + row_of(i) * out + column, values);
  });
}

// Computes kNormRows rows per block, with all of their columns.
template <int kColumns>
__global__ void __launch_bounds__(kTensorThreads) linear_norm_kernel(LinearNorm n) {
  using Tile = TensorTile<kNormRows, kColumns>;
  using LeftLayout = SliceLayout<Lanes::along_depth, kNormRows, kNormDepth>;
  using RightLayout = SliceLayout<Lanes::along_depth, kColumns, kNormDepth>;
  uint32_t* const left = dynamic_shared<uint32_t>();
  uint32_t* const right = left + LeftLayout::kPartStride;
  const int64_t first = int64_t{blockIdx.x} * kNormRows;
  Tile tile;
  for (int64_t begin = 0; begin < n.shape.in; begin += kNormDepth) {
    __syncthreads();
    copy_rows<kNormRows>(left, n.x, n.shape.rows, first, n.shape.in, begin);
    copy_rows<kColumns>(right, n.w, n.shape.out, 0, n.shape.in, begin);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kNormDepth; d += 16)
      tile.template add_product<RightLayout>(Tile::template fragment<LeftLayout>(left, d), right, d);
  }
  finish_rows(n, tile, first, reinterpret_cast<float*>(left));
}

template <int kColumns>
void launch_linear_norm(const LinearNorm& layer) {
  const LinearShape& shape = layer.shape;
  const size_t shared = (kNormRows + kColumns) * kPairStride<kNormDepth> * sizeof(uint32_t);
  const Launch blocks =
      over_rows((shape.rows + kNormRows - 1) / kNormRows, kTensorThreads, shared)
          .with_flop<BFloat16>(2.0 * static_cast<double>(shape.rows * shape.in * shape.out));
  launch(linear_norm_kernel<kColumns>, blocks, layer);
}

}  // namespace

bool linear_norm_forward(Backend, const LinearNorm& layer) {
  // Each block reads all of w, which takes more time than a product of cuBLAS if w is large.
  constexpr int64_t kMaxIn = 512, kWide = 256, kNarrow = 128, kPack = Pack<BFloat16>::kSize;
  const LinearShape& shape = layer.shape;
  if (shape.in == 0 || shape.in > kMaxIn || shape.in % kPack != 0 || shape.out == 0 || shape.out > kWide ||
      shape.out % 2 != 0)
    return false;
  if (!aligned_to_packs(layer.x, layer.w, layer.bias, layer.residual, layer.norm_weight, layer.norm_bias,
                        layer.y, layer.rounded))
    return false;
  if (shape.out <= kNarrow)
    launch_linear_norm<kNarrow>(layer);
  else
    launch_linear_norm<kWide>(layer);
  return true;
}

}  // namespace tapeformer::cuda
