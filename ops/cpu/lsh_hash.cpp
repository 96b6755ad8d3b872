#include <cmath>

#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "core/threads/threads.h"
#include "ops/cpu/arena.h"
#include "ops/cpu/tile_product.h"
#include "ops/kernels/lsh_attention.h"

namespace tapeformer::cpu {
namespace {

// Fills `panels` with a (dim, columns) matrix of normal random numbers, in panels of kTileColumns columns.
// The random numbers are drawn in column-major order. The random numbers are computed in float, so that
// T = float and T = double use the same rotation.
template <class T>
void draw_rotation(const RandomStream& stream, uint64_t first_block, int64_t dim, int64_t columns,
                   T* panels) {
  constexpr int64_t kWidth = kTileColumns<T>;
  std::fill_n(panels, round_up_to_tile_columns<T>(columns) * dim, T{0});
  float numbers[4] = {};
  for (int64_t e = 0; e < dim * columns; ++e) {
    if (e % 4 == 0) {
      const PhiloxBlock bits = stream.block(first_block + static_cast<uint64_t>(e / 4));
      for (size_t pair = 0; pair < 2; ++pair) {
        const float u = (static_cast<float>(bits[2 * pair] >> 8) + 0.5f) * 0x1p-24f;
        const float angle = 0x1p-32f * 6.2831853f * static_cast<float>(bits[2 * pair + 1]);
        const float radius = std::sqrt(-2 * std::log(u));
        numbers[2 * pair] = radius * std::cos(angle);
        numbers[2 * pair + 1] = radius * std::sin(angle);
      }
    }
    const int64_t column = e / dim, row = e % dim;
    panels[column / kWidth * kWidth * dim + row * kWidth + column % kWidth] = static_cast<T>(numbers[e % 4]);
  }
}

// Returns the index of the first maximum of the concatenation of x and -x.
template <class T>
int32_t argmax_of_both_signs(const T* x, int64_t count) {
  using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  int64_t largest = 0, smallest = 0, done = 1;
  if (count >= 2 * kLanes<T>) {
    // `high_at` and `low_at` hold the index of the first maximum and of the first minimum in each lane.
    Vector<T> high = load(x), low = high;
    Vector<Int> index{};
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) index[lane] = static_cast<Int>(lane);
    Vector<Int> high_at = index, low_at = index;
    for (done = kLanes<T>; done + kLanes<T> <= count; done += kLanes<T>) {
      const Vector<T> next = load(x + done);
      index += static_cast<Int>(kLanes<T>);
      high_at = next > high ? index : high_at;
      high = next > high ? next : high;
      low_at = next < low ? index : low_at;
      low = next < low ? next : low;
    }
    largest = high_at[0];
    smallest = low_at[0];
    for (int64_t lane = 1; lane < kLanes<T>; ++lane) {
      const int64_t h = high_at[lane], l = low_at[lane];
      if (x[h] > x[largest] || (x[h] == x[largest] && h < largest)) largest = h;
      if (x[l] < x[smallest] || (x[l] == x[smallest] && l < smallest)) smallest = l;
    }
  }
  for (int64_t i = done; i < count; ++i) {
    largest = x[i] > x[largest] ? i : largest;
    smallest = x[i] < x[smallest] ? i : smallest;
  }
  return static_cast<int32_t>(x[largest] >= -x[smallest] ? largest : count + smallest);
}

// Maximum size in bytes of the rotations that a thread uses at a time. The size is limited so that the
// rotations and a tile of queries stay in the cache.
constexpr int64_t kRotationBytes = 128 << 10;

// Computes the LSH buckets of one head per call of run(). S is the type of the queries, and T the type of the
// rotations.
template <class S>
class HeadHash {
  using T = Compute<S>;

 public:
  HeadHash(const LshHashShape& shape, const RandomStream& stream, AttentionRows<const S> q)
      : shape_(shape),
        stream_(stream),
        q_(q),
        max_rotation_(shape.max_buckets),
        rounds_at_once_(std::clamp<int64_t>(kRotationBytes / static_cast<int64_t>(sizeof(T)) /
                                                std::max<int64_t>(max_rotation_.width() * shape_.dim, 1),
                                            1, std::max<int64_t>(shape_.rounds, 1))) {}

  // Working memory of a thread: rotations in panels, a tile of queries, and a tile of rotated queries.
  struct Memory {
    T *rotations, *queries, *rotated;
  };
  Memory take(Arena& arena) const {
    const int64_t width = max_rotation_.width();
    return {arena.allocate<T>(rounds_at_once_ * width * shape_.dim),
            arena.allocate<T>(kTileRows * shape_.dim), arena.allocate<T>(kTileRows * width)};
  }

  // Computes the buckets (rounds, length) of one head. Each tile of queries is hashed for several rounds at a
  // time, so that a long sequence is read from memory fewer times.
  void run(int64_t example, int64_t head, const PerThreadMemory& memory, int32_t* buckets) const {
    const int64_t valid = shape_.lengths ? shape_.lengths[example] : shape_.length;
    const Rotation rotation(shape_.compute_bucket_counts(valid));
    for (int64_t round = 0; round < shape_.rounds; ++round) {
      int32_t* const row = buckets + round * shape_.length;
      std::fill_n(row, valid, 0);
      std::fill(row + valid, row + shape_.length, static_cast<int32_t>(rotation.factors.total()));
    }
    if (rotation.factors.total() < 2) return;
    const int64_t size = rotation.width() * shape_.dim;
    Arena arena = memory.arena();
    T* const rotations = take(arena).rotations;
    for (int64_t round = 0; round < shape_.rounds; round += rounds_at_once_) {
      const int64_t count = std::min(rounds_at_once_, shape_.rounds - round);
      for (int64_t r = 0; r < count; ++r) draw(rotation, example, head, round + r, rotations + r * size);
      const int64_t tiles = (valid + kTileRows - 1) / kTileRows;
      constexpr int64_t kGrain = 64;  // minimum number of tiles per thread
      parallel_for(tiles, kGrain, [&](int64_t begin, int64_t end) {
        Arena thread_arena = memory.arena();
        const Memory own = take(thread_arena);
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t position = tile * kTileRows;
          const Rows rows =
              rows_of(example, head, position, std::min(kTileRows, valid - position), own.queries);
          for (int64_t r = 0; r < count; ++r)
            hash_tile(rotation, rows, rotations + r * size, own.rotated,
                      buckets + (round + r) * shape_.length + position);
        }
      });
    }
  }

 private:
  struct Rotation {
    explicit Rotation(const LshBucketCounts& f)
        : factors(f),
          width1(round_up_to_tile_columns<T>(f.first / 2)),
          width2(f.second > 1 ? round_up_to_tile_columns<T>(f.second / 2) : 0) {}
    LshBucketCounts factors;
    int64_t width1, width2;  // columns of the first and second rotation, padded to whole tiles
    int64_t width() const { return width1 + width2; }
  };
  struct Rows {
    const T* data;
    int64_t stride, count;
  };

  void draw(const Rotation& rotation, int64_t example, int64_t head, int64_t round, T* panels) const {
    constexpr uint64_t kSecondFactor = 1 << 23;
    const int64_t head_index =
        shape_.share_all_rotations
            ? 0
            : ((shape_.share_rotations_across_examples ? 0 : shape_.first_example + example) << 12) + head;
    const auto first = static_cast<uint64_t>((head_index << 8) + round) << 24;
    draw_rotation(stream_, first, shape_.dim, rotation.factors.first / 2, panels);
    if (rotation.width2 > 0)
      draw_rotation(stream_, first + kSecondFactor, shape_.dim, rotation.factors.second / 2,
                    panels + rotation.width1 * shape_.dim);
  }

  // Returns `count` queries as rows of type T. If the queries have type T and fill a tile, they are not
  // copied. Otherwise, the queries are converted to T, written to `copy`, and padded with zeros.
  Rows rows_of(int64_t example, int64_t head, int64_t position, int64_t count, T* copy) const {
    const S* const first = q_.row(example, position, head);
    if constexpr (std::is_same_v<S, T>)
      if (count == kTileRows) return {first, q_.length_stride, count};
    std::fill_n(copy, kTileRows * shape_.dim, T{0});
    for (int64_t i = 0; i < count; ++i)
      convert_elements(first + i * q_.length_stride, shape_.dim, copy + i * shape_.dim);
    return {copy, shape_.dim, count};
  }

  void hash_tile(const Rotation& rotation, const Rows& rows, const T* panels, T* rotated,
                 int32_t* buckets) const {
    const int64_t width = rotation.width();
    for (int64_t column = 0; column < width; column += kTileColumns<T>)
      compute_tile_product<Left::rows, false>(rows.data, rows.stride, panels + column * shape_.dim,
                                              shape_.dim, rotated + column, width);
    for (int64_t i = 0; i < rows.count; ++i) {
      const T* const x = rotated + i * width;
      buckets[i] = argmax_of_both_signs(x, rotation.factors.first / 2);
      if (rotation.width2 > 0)
        buckets[i] += static_cast<int32_t>(rotation.factors.first) *
                      argmax_of_both_signs(x + rotation.width1, rotation.factors.second / 2);
    }
  }

  const LshHashShape& shape_;
  const RandomStream& stream_;
  const AttentionRows<const S> q_;
  const Rotation max_rotation_;
  const int64_t rounds_at_once_;
};

}  // namespace

template <class S>
void lsh_hash(Backend, const LshHashShape& s, const RandomStream& stream, AttentionRows<const S> q,
              int32_t* buckets) {
  const HeadHash<S> hash(s, stream, q);
  const int64_t tasks = s.batch * s.heads;
  constexpr int64_t kMinWorkPerThread = 1 << 18;  // number of multiply-adds
  Arena count(nullptr);
  hash.take(count);
  const PerThreadMemory memory(count.used_bytes());
  auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      hash.run(i / s.heads, i % s.heads, memory, buckets + i * s.rounds * s.length);
  };
  const int64_t head_work = s.rounds * s.length * s.dim * (s.max_buckets.first + s.max_buckets.second) / 2;
  if (tasks >= get_thread_count())
    parallel_for(tasks, kMinWorkPerThread / (head_work + 1) + 1, run);
  else
    run(0, tasks);  // HeadHash::run() divides the positions of each head among the threads
}

template <class T>
struct LshHashKernels {
  inline static const FunctionInstances all{&lsh_hash<T>};
};
template struct LshHashKernels<float>;
template struct LshHashKernels<double>;
template struct LshHashKernels<BFloat16>;

}  // namespace tapeformer::cpu
