#include "core/base/instances.h"
#include "ops/cuda/tile_product.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cuda {
namespace {

// The random rotations of one call of lsh_hash(), and their layout in memory. A rotation consists of matrices
// 0 and 1. Matrix `factor` has the shape (dim, columns(factor)). Matrix 1 can have 0 columns.
struct Rotations {
  LshHashShape s;
  GraphRandomStream stream;

  // Returns the number of columns of matrix `factor`. A sequence that has fewer buckets than s.max_buckets
  // uses only the first columns.
  __device__ int64_t columns(int factor) const {
    return factor == 0 ? s.max_buckets.first / 2 : s.max_buckets.second / 2;
  }
  __device__ int64_t size() const { return s.dim * (columns(0) + columns(1)); }
  __device__ int64_t rotation_index(int64_t example, int64_t head, int64_t round) const {
    if (s.share_all_rotations) return round;
    return ((s.share_rotations_across_examples ? 0 : example) * s.heads + head) * s.rounds + round;
  }
};

// Writes `count` rotations to `target`, which has the shape (count, size()). Each thread computes four
// standard normal numbers at a time with the Box-Muller transform. The random numbers are computed in float,
// as in the CPU kernel. The documentation of lsh_hash() in ops/kernels/lsh_attention.h defines the order of
// the random numbers.
template <class T>
__global__ void draw_rotations_kernel(Rotations rotations, int64_t count, T* target) {
  const LshHashShape& s = rotations.s;
  const RandomStream stream = rotations.stream.current_stream();
  const int64_t first = s.dim * rotations.columns(0), second = s.dim * rotations.columns(1);
  const int64_t first_blocks = (first + 3) / 4, blocks = first_blocks + (second + 3) / 4;
  constexpr uint64_t kSecondFactorOffset = 1 << 23;
  for (int64_t i = first_element(); i < count * blocks; i += element_stride()) {
    const int64_t rotation = i / blocks, block = i % blocks, round = rotation % s.rounds;
    const int64_t head = rotation / s.rounds % s.heads, example = rotation / s.rounds / s.heads;
    const int64_t example_in_stream =
        s.share_all_rotations || s.share_rotations_across_examples ? 0 : s.first_example + example;
    const int64_t sequence_in_stream = (example_in_stream << 12) + head;
    const bool is_second = block >= first_blocks;
    const int64_t block_in_matrix = is_second ? block - first_blocks : block;
    const PhiloxBlock bits =
        stream.block((static_cast<uint64_t>((sequence_in_stream << 8) + round) << 24) +
                     (is_second ? kSecondFactorOffset : 0) + static_cast<uint64_t>(block_in_matrix));
    T* const matrix = target + rotation * rotations.size() + (is_second ? first : 0);
    const int64_t columns = rotations.columns(is_second), size = is_second ? second : first;
    const auto store_element = [&](int64_t e, float value) {
      if (e < size) matrix[e % s.dim * columns + e / s.dim] = static_cast<T>(value);
    };
    for (size_t pair = 0; pair < 2; ++pair) {
      const float u = (static_cast<float>(bits[2 * pair] >> 8) + 0.5f) * 0x1p-24f;
      const float angle = 0x1p-32f * 6.2831853f * static_cast<float>(bits[2 * pair + 1]);
      const float radius = std::sqrt(-2 * std::log(u));
      const int64_t element = block_in_matrix * 4 + 2 * static_cast<int64_t>(pair);
      store_element(element, radius * std::cos(angle));
      store_element(element + 1, radius * std::sin(angle));
    }
  }
}

// The maximum of a sequence of numbers, and the index of the maximum. If several numbers are equal to the
// maximum, `index` is the lowest index of these numbers. If the sequence is empty, `index` is -1.
template <class T>
struct ArgMax {
  T value;
  int32_t index = -1;

  // Adds the number `other` with the index other_index. Does nothing if other_index is -1.
  __device__ void update(T other, int32_t other_index) {
    if (other_index < 0 || (index >= 0 && (other < value || (other == value && index < other_index)))) return;
    if (index >= 0 && !(other > value) && other != value) return;  // `value` or `other` is NaN
    value = other;
    index = other_index;
  }
  // Computes the maximum over the threads that hold elements of the same row of a SimtTile.
  __device__ void reduce_lanes() {
    for (int bits = kTileEdgeThreads / 2; bits > 0; bits /= 2) {
      const T other = __shfl_xor_sync(kAllLanes, value, bits);
      const int32_t other_index = __shfl_xor_sync(kAllLanes, index, bits);
      update(other, other_index);
    }
  }
};

// Computes the buckets of kTileTokens positions in one round of one head per thread block. `blocks` is the
// number of thread blocks for each round of each head.
template <class S, class T = Compute<S>>
__global__ void hash_kernel(Rotations rotations, AttentionRows<const S> q, const T* matrices, int64_t blocks,
                            int32_t* buckets) {
  const SimtMemory<T> memory;
  const LshHashShape& s = rotations.s;
  const int64_t head_round = blockIdx.x / blocks, begin = blockIdx.x % blocks * kTileTokens;
  const int64_t round = head_round % s.rounds, head = head_round / s.rounds % s.heads,
                example = head_round / s.rounds / s.heads;
  const int64_t valid = get_valid_length(s.lengths, example, s.length);
  const StridedRows<S> rows{q.row(example, 0, head), q.length_stride, valid, s.dim};
  using Rotated = SimtTile<T, kTileTokens, kTileTokens>;
  int32_t bucket[Rotated::kRowsPerThread] = {};
  const T* matrix = matrices + rotations.rotation_index(example, head, round) * rotations.size();
  const LshBucketCounts factors = s.compute_bucket_counts(valid);
  int32_t unit = 1;
  for (int factor = 0; factor < (factors.second > 1 ? 2 : factors.first > 1 ? 1 : 0); ++factor) {
    const int64_t columns = (factor == 0 ? factors.first : factors.second) / 2;
    const int64_t stride = rotations.columns(factor);
    ArgMax<T> largest[Rotated::kRowsPerThread], smallest[Rotated::kRowsPerThread];
    for (int64_t column = 0; column < columns; column += kTileTokens) {
      Rotated rotated;
      add_products<kAlongDepth, kAlongTile>(
          rotated, memory, s.dim, [&](int64_t d, int i) { return rows.load(begin + i, d); },
          [&](int64_t d, int j) {
            return d < s.dim && column + j < columns ? matrix[d * stride + column + j] : T{0};
          });
#pragma unroll(kUnrollFactor <T>)
      for (int i = 0; i < Rotated::kRowsPerThread; ++i)
#pragma unroll(kUnrollFactor <T>)
        for (int j = 0; j < Rotated::kColumnsPerThread; ++j) {
          const int64_t rotated_column = column + Rotated::column(j);
          if (rotated_column >= columns) continue;
          largest[i].update(rotated.elements[i][j], static_cast<int32_t>(rotated_column));
          smallest[i].update(-rotated.elements[i][j], static_cast<int32_t>(rotated_column));
        }
    }
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Rotated::kRowsPerThread; ++i) {
      largest[i].reduce_lanes();
      smallest[i].reduce_lanes();
      const bool positive = largest[i].value >= smallest[i].value;
      bucket[i] += unit * (positive ? largest[i].index : static_cast<int32_t>(columns) + smallest[i].index);
    }
    matrix += s.dim * stride;
    unit *= static_cast<int32_t>(2 * columns);
  }
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Rotated::kRowsPerThread; ++i) {
    const int64_t position = begin + Rotated::row(i);
    if (position < s.length && Rotated::is_row_leader())
      buckets[head_round * s.length + position] =
          position < valid ? bucket[i] : static_cast<int32_t>(factors.total());
  }
}

}  // namespace

template <class S>
void lsh_hash(Backend, const LshHashShape& s, const RandomStream& stream, AttentionRows<const S> q,
              int32_t* buckets) {
  using T = Compute<S>;
  const Rotations rotations{s, GraphRandomStream(stream)};
  int64_t count =
      s.rounds * (s.share_all_rotations ? 1 : s.heads * (s.share_rotations_across_examples ? 1 : s.batch));
  if (s.max_buckets.total() < 2) count = 0;
  const int64_t columns1 = s.max_buckets.first / 2, columns2 = s.max_buckets.second / 2;
  const int64_t philox_blocks = (s.dim * columns1 + 3) / 4 + (s.dim * columns2 + 3) / 4;
  const Scratch<T> matrices(count * s.dim * (columns1 + columns2));
  launch(draw_rotations_kernel<T>, make_elementwise_launch(count * philox_blocks), rotations, count,
         matrices.data());
  const int64_t blocks = count_tiles(s.length, kTileTokens);
  launch(hash_kernel<S>,
         make_row_launch(s.batch * s.heads * s.rounds * blocks, kTileThreads, SimtMemory<T>::kSliceBytes),
         rotations, q, matrices.data(), blocks, buckets);
}

template <class T>
struct LshHashKernels {
  inline static const FunctionInstances all{&lsh_hash<T>};
};
TAPEFORMER_FLOAT(template struct LshHashKernels<float>; template struct LshHashKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LshHashKernels<double>;)

}  // namespace tapeformer::cuda
