#include "ops/cuda/lsh_order.h"

#include <bit>

namespace tapeformer::cuda {
namespace {

constexpr int kSortThreads = 256;
constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits;
// Stride between digits in shared memory, with a padding after each warp that limits bank conflicts.
constexpr int kDigitStride = kSortThreads + kWarpSize;

// Returns the index in shared memory of the count of a digit and a thread.
__device__ int count_index(int digit, int thread) {
  return digit * kDigitStride + thread + thread / kWarpSize;
}

// Returns the sum of `value` over the threads of the block before the calling thread. All threads of a block
// of kSortThreads call the function.
__device__ int32_t sum_before(int32_t value) {
  __shared__ int32_t warp_values[kSortThreads / kWarpSize];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
  int32_t sum = value;  // inclusive prefix sum of the warp
  for (unsigned step = 1; step < kWarpSize; step *= 2) {
    const int32_t before = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= static_cast<int>(step)) sum += before;
  }
  __syncthreads();  // all threads have read the sums of the previous call
  if (lane == kWarpSize - 1) warp_values[thread / kWarpSize] = sum;
  __syncthreads();
  for (int warp = 0; warp < thread / kWarpSize; ++warp) sum += warp_values[warp];
  return sum - value;
}

// Sorts one round of a head per block by (bucket, position), with a radix sort from the lowest digit. Each
// thread processes a run of adjacent slots in order. Then writes the codes of the cells to `all_codes`.
__global__ void sort_kernel(LshAttentionShape s, const int32_t* all_buckets, int passes, int32_t* all_sorted,
                            int32_t* all_other, int32_t* all_codes) {
  __shared__ int32_t counts[kDigits * kDigitStride];  // counts, and later first slots, by digit and thread
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t offset = int64_t{blockIdx.x} * s.length;
  const int64_t valid = lsh_valid_length(s, blockIdx.x / s.rounds / s.heads);
  const int32_t* const buckets = all_buckets + offset;
  int32_t *const sorted = all_sorted + offset, *const other = all_other + offset;
  const int64_t run = (valid + kSortThreads - 1) / kSortThreads;
  const int64_t begin = thread * run < valid ? thread * run : valid;
  const int64_t end = begin + run < valid ? begin + run : valid;

  const int32_t* from = nullptr;  // null in the first pass: position i is in slot i
  for (int pass = 0; pass < passes; ++pass) {
    int32_t* const to = (passes - pass) % 2 == 1 ? sorted : other;
    const auto position_at = [&](int64_t slot) { return from ? from[slot] : static_cast<int32_t>(slot); };
    const auto digit_of = [&](int32_t position) {
      return static_cast<int>(static_cast<uint32_t>(buckets[position]) >> (kDigitBits * pass)) % kDigits;
    };
    for (int digit = 0; digit < kDigits; ++digit) counts[count_index(digit, thread)] = 0;
    for (int64_t slot = begin; slot < end; ++slot) ++counts[count_index(digit_of(position_at(slot)), thread)];
    __syncthreads();
    // Each thread adds up the counts of one digit and kCountsPerThread adjacent threads.
    constexpr int kCountsPerThread = kDigits, kShares = kSortThreads / kCountsPerThread;
    int32_t* const share = counts + count_index(thread / kShares, thread % kShares * kCountsPerThread);
    int32_t sum = 0;
    for (int i = 0; i < kCountsPerThread; ++i) sum += share[i];
    int32_t before = sum_before(sum);
    for (int i = 0; i < kCountsPerThread; ++i) {
      const int32_t count = share[i];
      share[i] = before;
      before += count;
    }
    __syncthreads();
    for (int64_t slot = begin; slot < end; ++slot) {
      const int32_t position = position_at(slot);
      to[counts[count_index(digit_of(position), thread)]++] = position;
    }
    __syncthreads();
    from = to;
  }

  const auto step_at = [&](int64_t slot) -> int32_t {
    if (slot == 0) return 0;
    if (!s.across_buckets && buckets[sorted[slot]] != buckets[sorted[slot - 1]]) return 2;
    return slot % s.chunk_length == 0 ? 1 : 0;
  };
  int32_t steps = 0;
  for (int64_t slot = begin; slot < end; ++slot) steps += step_at(slot);
  int32_t code = sum_before(steps);
  for (int64_t slot = begin; slot < end; ++slot) {
    code += step_at(slot);
    all_codes[offset + sorted[slot]] = code;
  }
}

// Finds the LshWrapCell of one round of a head per thread. A round may look back at another round.
__global__ void wrap_kernel(LshAttentionShape s, const int32_t* buckets, LshOrderView view, int64_t count,
                            LshWrapCell* wraps) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const LshHeadOrder order(s, view, i / s.rounds);
    const int64_t round = i % s.rounds;
    LshWrapCell wrap{kNoCell, static_cast<int32_t>(round), kNoCell};
    if (order.chunks >= 2 && s.wrap != LshWrap::none) {
      const int64_t to = s.wrap == LshWrap::global ? (round + s.rounds - 1) % s.rounds : round;
      const int32_t near = order.positions(round, 0)[s.chunk_length - 1];
      const int32_t far = order.positions(to, order.chunks - 1)[0];
      const int32_t* const ids = buckets + i * s.length;
      if (s.across_buckets || (to == round && ids[near] == ids[far]))
        wrap = {order.code(round, near), static_cast<int32_t>(to), order.code(to, far)};
    }
    wraps[i] = wrap;
  }
}

}  // namespace

LshOrders::LshOrders(const LshAttentionShape& s, const int32_t* buckets)
    : sorted_(s.batch * s.heads * s.rounds * s.length),
      codes_(s.batch * s.heads * s.rounds * s.length),
      wraps_(s.batch * s.heads * s.rounds) {
  const Scratch<int32_t> other(s.batch * s.heads * s.rounds * s.length);
  const int64_t rounds = s.batch * s.heads * s.rounds;
  // Bucket numbers are in [0, length].
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(s.length)));
  const int passes = (bits + kDigitBits - 1) / kDigitBits;
  launch(sort_kernel, over_rows(rounds, kSortThreads), s, buckets, passes, sorted_.data(), other.data(),
         codes_.data());
  launch(wrap_kernel, over_elements(rounds), s, buckets, view(), rounds, wraps_.data());
}

}  // namespace tapeformer::cuda
