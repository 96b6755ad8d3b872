#include "core/instances.h"
#include "ops/cuda/tile_product.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cuda {
namespace {

// The rotations of one hash and their layout in memory.
struct Rotations {
  LshHashShape s;
  GraphRandomStream stream;

  // Returns the number of columns of the first (factor 0) or second (factor 1) rotation. A sequence with
  // fewer buckets uses only the first columns.
  __device__ int64_t columns(int factor) const {
    return factor == 0 ? s.max_buckets.first / 2 : s.max_buckets.second / 2;
  }
  __device__ int64_t size() const { return s.dim * (columns(0) + columns(1)); }
  // Returns the index of the rotation of a round of a head.
  __device__ int64_t rotation_index(int64_t example, int64_t head, int64_t round) const {
    if (s.share_all_rotations) return round;
    return ((s.share_across_examples ? 0 : example) * s.heads + head) * s.rounds + round;
  }
};

// Draws four standard normal numbers per thread by the Box-Muller transform in float, as on the CPU.
template <class T>
__global__ void draw_kernel(Rotations rotations, int64_t count, T* target) {
  const LshHashShape& s = rotations.s;
  const RandomStream stream = rotations.stream.now();
  const int64_t first = s.dim * rotations.columns(0), second = s.dim * rotations.columns(1);
  const int64_t first_blocks = (first + 3) / 4, blocks = first_blocks + (second + 3) / 4;
  constexpr uint64_t kSecondFactor = 1 << 23;
  for (int64_t i = first_element(); i < count * blocks; i += element_stride()) {
    const int64_t rotation = i / blocks, block = i % blocks, round = rotation % s.rounds;
    const int64_t head = rotation / s.rounds % s.heads, example = rotation / s.rounds / s.heads;
    const int64_t drawn_example =
        s.share_all_rotations || s.share_across_examples ? 0 : s.first_example + example;
    const int64_t sequence = (drawn_example << 12) + head;
    const bool in_second = block >= first_blocks;
    const int64_t own_block = in_second ? block - first_blocks : block;
    const PhiloxBlock bits = stream.block((static_cast<uint64_t>((sequence << 8) + round) << 24) +
                                          (in_second ? kSecondFactor : 0) + static_cast<uint64_t>(own_block));
    T* const matrix = target + rotation * rotations.size() + (in_second ? first : 0);
    const int64_t columns = rotations.columns(in_second), size = in_second ? second : first;
    const auto set = [&](int64_t e, float value) {
      if (e < size) matrix[e % s.dim * columns + e / s.dim] = static_cast<T>(value);
    };
    for (size_t pair = 0; pair < 2; ++pair) {
      const float u = (static_cast<float>(bits[2 * pair] >> 8) + 0.5f) * 0x1p-24f;
      const float angle = 0x1p-32f * 6.2831853f * static_cast<float>(bits[2 * pair + 1]);
      const float radius = std::sqrt(-2 * std::log(u));
      const int64_t at = own_block * 4 + 2 * static_cast<int64_t>(pair);
      set(at, radius * std::cos(angle));
      set(at + 1, radius * std::sin(angle));
    }
  }
}

// The maximum of the values so far, and its index. If several values are equal to the maximum, the index is
// the lowest index of these values.
template <class T>
struct Largest {
  T value;
  int32_t index = -1;

  __device__ void take(T other, int32_t at) {
    if (at < 0 || (index >= 0 && (other < value || (other == value && index < at)))) return;
    if (index >= 0 && !(other > value) && other != value) return;  // `value` or `other` is NaN
    value = other;
    index = at;
  }
  __device__ void reduce_row() {
    for (int bits = kTileEdge / 2; bits > 0; bits /= 2) {
      const T other = __shfl_xor_sync(kAllLanes, value, bits);
      const int32_t at = __shfl_xor_sync(kAllLanes, index, bits);
      take(other, at);
    }
  }
};

// Hashes kTokens positions of a round of a head per block.
template <class S, class T = Compute<S>>
__global__ void hash_kernel(Rotations rotations, AttentionRows<const S> q, const T* drawn, int64_t blocks,
                            int32_t* buckets) {
  const PlainMemory<T> memory;
  const LshHashShape& s = rotations.s;
  const int64_t task = blockIdx.x / blocks, begin = blockIdx.x % blocks * kTokens;
  const int64_t round = task % s.rounds, head = task / s.rounds % s.heads,
                example = task / s.rounds / s.heads;
  const int64_t valid = read_valid_length(s.lengths, example, s.length);
  const PlainRows<S> rows{q.row(example, 0, head), q.length_stride, valid, s.dim};
  using Rotated = PlainTile<T, kTokens, kTokens>;
  int32_t bucket[Rotated::kRowsEach] = {};
  const T* matrix = drawn + rotations.rotation_index(example, head, round) * rotations.size();
  const LshBucketCounts factors = s.bucket_counts(valid);
  int32_t unit = 1;
  for (int factor = 0; factor < (factors.second > 1 ? 2 : factors.first > 1 ? 1 : 0); ++factor) {
    const int64_t columns = (factor == 0 ? factors.first : factors.second) / 2;
    const int64_t stride = rotations.columns(factor);
    Largest<T> high[Rotated::kRowsEach], low[Rotated::kRowsEach];
    for (int64_t column = 0; column < columns; column += kTokens) {
      Rotated rotated;
      add_products<Lanes::along_depth, Lanes::along_tile>(
          rotated, memory, s.dim, [&](int64_t d, int i) { return rows.at(begin + i, d); },
          [&](int64_t d, int j) {
            return d < s.dim && column + j < columns ? matrix[d * stride + column + j] : T{0};
          });
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < Rotated::kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
        for (int j = 0; j < Rotated::kColumnsEach; ++j) {
          const int64_t at = column + Rotated::column(j);
          if (at >= columns) continue;
          high[i].take(rotated.elements[i][j], static_cast<int32_t>(at));
          low[i].take(-rotated.elements[i][j], static_cast<int32_t>(at));
        }
    }
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < Rotated::kRowsEach; ++i) {
      high[i].reduce_row();
      low[i].reduce_row();
      const bool positive = high[i].value >= low[i].value;
      bucket[i] += unit * (positive ? high[i].index : static_cast<int32_t>(columns) + low[i].index);
    }
    matrix += s.dim * stride;
    unit *= static_cast<int32_t>(2 * columns);
  }
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Rotated::kRowsEach; ++i) {
    const int64_t position = begin + Rotated::row(i);
    if (position < s.length && Rotated::first_of_row())
      buckets[task * s.length + position] =
          position < valid ? bucket[i] : static_cast<int32_t>(factors.total());
  }
}

}  // namespace

template <class S>
void lsh_hash(Backend, const LshHashShape& s, const RandomStream& stream, AttentionRows<const S> q,
              int32_t* buckets) {
  using T = Compute<S>;
  const Rotations rotations{s, GraphRandomStream(stream)};
  int64_t count = s.rounds * (s.share_all_rotations ? 1 : s.heads * (s.share_across_examples ? 1 : s.batch));
  if (s.max_buckets.total() < 2) count = 0;
  const int64_t columns1 = s.max_buckets.first / 2, columns2 = s.max_buckets.second / 2;
  const int64_t random_blocks = (s.dim * columns1 + 3) / 4 + (s.dim * columns2 + 3) / 4;
  const Scratch<T> drawn(count * s.dim * (columns1 + columns2));
  launch(draw_kernel<T>, over_elements(count * random_blocks), rotations, count, drawn.data());
  const int64_t blocks = tiles_of(s.length, kTokens);
  launch(hash_kernel<S>,
         over_rows(s.batch * s.heads * s.rounds * blocks, kTileThreads, PlainMemory<T>::kSliceBytes),
         rotations, q, drawn.data(), blocks, buckets);
}

template <class T>
struct LshHashKernels {
  inline static const Instances all{&lsh_hash<T>};
};
TAPEFORMER_FLOAT(template struct LshHashKernels<float>; template struct LshHashKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LshHashKernels<double>;)

}  // namespace tapeformer::cuda
