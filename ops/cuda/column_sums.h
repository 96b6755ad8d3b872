// Sums of the columns of a matrix, computed in one launch. Each thread block writes one row of partial sums
// and calls complete_column_sums(), which adds the partial sums in two steps:
// 1. In each group of kPartialSumsPerGroup thread blocks, the block that finishes last adds the partial sums
//    of the group.
// 2. The thread block that completes the last group adds the sums of all groups. The order of the additions
//    does not depend on the order in which thread blocks finish, so column sums are deterministic.
#pragma once

#include <optional>

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxPartialSums = 512;  // maximum number of partial sums per column
inline constexpr int64_t kPartialSumsPerGroup = 16;

__host__ __device__ inline int64_t count_partial_sum_groups(int64_t partial_sum_count) {
  return (partial_sum_count + kPartialSumsPerGroup - 1) / kPartialSumsPerGroup;
}

// The arrays that a kernel uses to sum columns. The sums of columns before second_target_begin are written to
// targets[0], and the sums of the other columns are written to targets[1].
template <class T>
struct ColumnSums {
  int64_t partial_sum_count, column_count, second_target_begin;
  T* partial_sums;  // (partial_sum_count, column_count)
  T* targets[2];    // (second_target_begin,) and (column_count - second_target_begin,). A target can be null.
  // Arrival counters with shape (strips, groups + 1), where a strip is a range of columns. For each strip,
  // counter g counts the thread blocks of group g that have written their partial sums, and the last counter
  // counts the completed groups. All arrival counters are 0 before and after the launch.
  unsigned* arrival_counters;
};

// Owns the memory of a ColumnSums for one launch. The columns are divided into `strip_count` ranges, called
// strips, and different thread blocks sum different strips. If both targets are null, sums().partial_sums is
// null.
template <class T>
class ColumnSumsWorkspace {
 public:
  ColumnSumsWorkspace(int64_t partial_sum_count, int64_t column_count, int64_t second_target_begin,
                      int64_t strip_count, T* first_target, T* second_target = nullptr)
      : partial_sums_(first_target || second_target ? partial_sum_count * column_count : 0),
        sums_{partial_sum_count,
              column_count,
              second_target_begin,
              partial_sums_.data(),
              {first_target, second_target},
              get_context().arrival_counters} {
    const int64_t counter_count = strip_count * (count_partial_sum_groups(partial_sum_count) + 1);
    if (counter_count <= kArrivalCounterCount || !partial_sums_.data()) return;
    counter_memory_.emplace(counter_count);
    sums_.arrival_counters = counter_memory_->data();
    fill_zero(sums_.arrival_counters, counter_count * static_cast<int64_t>(sizeof(unsigned)));
  }
  const ColumnSums<T>& sums() const { return sums_; }

 private:
  Scratch<T> partial_sums_;
  std::optional<Scratch<unsigned>> counter_memory_;
  ColumnSums<T> sums_;
};

// Increments `counter` once per block. Returns true in the last of the `expected` blocks that call the
// function with this counter. The last block sees the writes of the other blocks, and sets the counter to 0.
// All threads of a block call the function.
__device__ inline bool arrive_and_check_last(unsigned* counter, int64_t expected) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    is_last = atomicAdd(counter, 1U) + 1 == static_cast<unsigned>(expected);
    if (is_last) *counter = 0;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

// Loads an element that another block has written. The load bypasses the L1 cache, which is not coherent and
// may hold an outdated cache line.
template <class T>
__device__ T load_bypassing_l1(const T* element) {
#ifdef __CUDA_ARCH__
  return __ldcg(element);
#else
  return *element;
#endif
}

// Adds the rows first, first + step, …, first + (count - 1) * step of `partial_sums`, in the columns [begin,
// end). Calls write(column, sum) for each column.
template <class T, class F>
__device__ void reduce_partial_sums(const ColumnSums<T>& sums, int64_t first, int64_t count, int64_t step,
                                    int64_t begin, int64_t end, F&& write) {
  const int64_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int64_t column = begin + thread; column < end; column += blockDim.x * blockDim.y) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(
          load_bypassing_l1(sums.partial_sums + (first + i * step) * sums.column_count + column));
    write(column, static_cast<T>(sum));
  }
}

// Adds the partial sums of strip `strip`, which consists of columns [begin, end), and writes the sums to the
// targets. Each thread block calls complete_column_sums() after it has written columns [begin, end) of row
// `row` of `partial_sums`. All threads of the block must call complete_column_sums(). Only the last thread
// block of each group performs additions.
template <class T>
__device__ void complete_column_sums(const ColumnSums<T>& sums, int64_t row, int64_t strip, int64_t begin,
                                     int64_t end) {
  const int64_t group_count = count_partial_sum_groups(sums.partial_sum_count),
                group = row / kPartialSumsPerGroup;
  const int64_t first = group * kPartialSumsPerGroup, remaining = sums.partial_sum_count - first;
  const int64_t count = remaining < kPartialSumsPerGroup ? remaining : kPartialSumsPerGroup;
  unsigned* const arrival_counters = sums.arrival_counters + strip * (group_count + 1);
  if (!arrive_and_check_last(arrival_counters + group, count)) return;
  // The sum of a group replaces the first partial sum of the group.
  reduce_partial_sums(sums, first, count, 1, begin, end, [&](int64_t column, T sum) {
    sums.partial_sums[first * sums.column_count + column] = sum;
  });
  if (!arrive_and_check_last(arrival_counters + group_count, group_count)) return;
  reduce_partial_sums(sums, 0, group_count, kPartialSumsPerGroup, begin, end, [&](int64_t column, T sum) {
    const bool is_second = column >= sums.second_target_begin;
    T* const target = is_second ? sums.targets[1] : sums.targets[0];
    if (target) target[is_second ? column - sums.second_target_begin : column] = sum;
  });
}

}  // namespace tapeformer::cuda
