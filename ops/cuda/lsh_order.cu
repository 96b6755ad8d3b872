#include "ops/cuda/lsh_order.h"

#include <bit>

namespace tapeformer::cuda {
namespace {

constexpr int kSortThreads = 256;
constexpr int kDigitBits = 4, kDigits = 1 << kDigitBits;
// Stride between the counts of consecutive digits in shared memory. After the counts of each warp, one
// element is unused. This padding reduces bank conflicts.
constexpr int kDigitStride = kSortThreads + kWarpSize;

__device__ int compute_count_index(int digit, int thread) {
  return digit * kDigitStride + thread + thread / kWarpSize;
}

// Returns the sum of `value` over the threads of the block with a lower index than the calling thread. All
// kSortThreads threads of the block call the function.
__device__ int32_t exclusive_block_sum(int32_t value) {
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

// Sorts positions by bucket with a stable radix sort, and writes the code of the cell of each position to
// `all_codes`. Each thread block processes one round of one head. ops/cpu/lsh_order.h defines cells and
// codes.
__global__ void sort_kernel(LshAttentionShape s, const int32_t* all_buckets, int passes, int32_t* all_sorted,
                            int32_t* all_scratch, int32_t* all_codes) {
  // For each digit and thread, the number of positions of the thread whose bucket has this digit. A prefix
  // sum replaces each number by the slot to which the thread writes the first position with this digit.
  __shared__ int32_t counts[kDigits * kDigitStride];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t offset = int64_t{blockIdx.x} * s.length;
  const int64_t valid = get_lsh_valid_length(s, blockIdx.x / s.rounds / s.heads);
  const int32_t* const buckets = all_buckets + offset;
  int32_t *const sorted = all_sorted + offset, *const scratch = all_scratch + offset;
  const int64_t run = (valid + kSortThreads - 1) / kSortThreads;
  const int64_t begin = thread * run < valid ? thread * run : valid;
  const int64_t end = begin + run < valid ? begin + run : valid;
  // The positions in the order before the current pass; null in the first pass, where slot i has position i.
  const int32_t* from = nullptr;
  for (int pass = 0; pass < passes; ++pass) {
    int32_t* const to = (passes - pass) % 2 == 1 ? sorted : scratch;
    const auto find_position = [&](int64_t slot) { return from ? from[slot] : static_cast<int32_t>(slot); };
    const auto find_digit = [&](int32_t position) {
      return static_cast<int>(static_cast<uint32_t>(buckets[position]) >> (kDigitBits * pass)) % kDigits;
    };
    for (int digit = 0; digit < kDigits; ++digit) counts[compute_count_index(digit, thread)] = 0;
    for (int64_t slot = begin; slot < end; ++slot)
      ++counts[compute_count_index(find_digit(find_position(slot)), thread)];
    __syncthreads();
    // Replaces the counts by the exclusive prefix sum of the counts, in the order of digits and then threads.
    // Each thread processes kCountsPerThread counts of one digit.
    constexpr int kCountsPerThread = kDigits, kShares = kSortThreads / kCountsPerThread;
    int32_t* const share =
        counts + compute_count_index(thread / kShares, thread % kShares * kCountsPerThread);
    int32_t sum = 0;
    for (int i = 0; i < kCountsPerThread; ++i) sum += share[i];
    int32_t before = exclusive_block_sum(sum);
    for (int i = 0; i < kCountsPerThread; ++i) {
      const int32_t count = share[i];
      share[i] = before;
      before += count;
    }
    __syncthreads();
    for (int64_t slot = begin; slot < end; ++slot) {
      const int32_t position = find_position(slot);
      to[counts[compute_count_index(find_digit(position), thread)]++] = position;
    }
    __syncthreads();
    from = to;
  }

  const auto code_step = [&](int64_t slot) -> int32_t {
    if (slot == 0) return 0;
    if (!s.across_buckets && buckets[sorted[slot]] != buckets[sorted[slot - 1]]) return 2;
    return slot % s.chunk_length == 0 ? 1 : 0;
  };
  int32_t code_steps = 0;
  for (int64_t slot = begin; slot < end; ++slot) code_steps += code_step(slot);
  int32_t code = exclusive_block_sum(code_steps);
  for (int64_t slot = begin; slot < end; ++slot) {
    code += code_step(slot);
    all_codes[offset + sorted[slot]] = code;
  }
}

// Finds the LshWrapPair of each round of each head. Each thread processes one round of one head at a time.
__global__ void wrap_kernel(LshAttentionShape s, const int32_t* buckets, LshOrderView view, int64_t count,
                            LshWrapPair* wraps) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const LshHeadOrder order(s, view, i / s.rounds);
    const int64_t round = i % s.rounds;
    LshWrapPair wrap{kNoCell, static_cast<int32_t>(round), kNoCell};
    if (order.chunk_count >= 2 && s.wrap != LshWrap::none) {
      const int64_t key_round = s.wrap == LshWrap::global ? (round + s.rounds - 1) % s.rounds : round;
      const int32_t query = order.positions(round, 0)[s.chunk_length - 1];
      const int32_t key = order.positions(key_round, order.chunk_count - 1)[0];
      const int32_t* const round_buckets = buckets + i * s.length;
      if (s.across_buckets || (key_round == round && round_buckets[query] == round_buckets[key]))
        wrap = {order.cell_code(round, query), static_cast<int32_t>(key_round),
                order.cell_code(key_round, key)};
    }
    wraps[i] = wrap;
  }
}

}  // namespace

LshOrders::LshOrders(const LshAttentionShape& s, const int32_t* buckets)
    : sorted_positions_(s.batch * s.heads * s.rounds * s.length),
      codes_(s.batch * s.heads * s.rounds * s.length),
      wrap_pairs_(s.batch * s.heads * s.rounds) {
  const Scratch<int32_t> scratch(s.batch * s.heads * s.rounds * s.length);
  const int64_t rounds = s.batch * s.heads * s.rounds;
  // Bucket numbers are in [0, length].
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(s.length)));
  const int passes = (bits + kDigitBits - 1) / kDigitBits;
  launch(sort_kernel, make_row_launch(rounds, kSortThreads), s, buckets, passes, sorted_positions_.data(),
         scratch.data(), codes_.data());
  launch(wrap_kernel, make_elementwise_launch(rounds), s, buckets, view(), rounds, wrap_pairs_.data());
}

}  // namespace tapeformer::cuda
