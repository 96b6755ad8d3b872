// Sums of the columns of a matrix in one launch, in an order that depends only on the shape. The blocks of a
// kernel write partial sums over their rows and call collect_columns(). The last block of each group of parts
// adds the partial sums of the group, and the last of these blocks adds the sums of the groups.
#pragma once

#include <optional>

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {

inline constexpr int64_t kMaxParts = 512;     // maximum number of partial sums per column
inline constexpr int64_t kPartsOfGroup = 16;  // with kMaxParts parts, there are 32 groups

__host__ __device__ inline int64_t groups_of_parts(int64_t parts) {
  return (parts + kPartsOfGroup - 1) / kPartsOfGroup;
}

// Partial sums of `columns` columns and the arrays of their sums. Columns from `second_column` belong to the
// second target.
template <class T>
struct ColumnSums {
  int64_t parts, columns, second_column;
  T* partial;                  // (parts, columns)
  T* targets[2];               // (second_column,) and (columns - second_column,); each may be null
  unsigned* arrival_counters;  // (strips, groups + 1): zeros before and after the launch
};

// ColumnSums and its memory, for one launch. `strips` is the number of ranges of columns that different
// blocks sum. If both targets are null, there are no partial sums.
template <class T>
class ColumnSumsMemory {
 public:
  ColumnSumsMemory(int64_t parts, int64_t columns, int64_t second_column, int64_t strips, T* first,
                   T* second = nullptr)
      : partial_(first || second ? parts * columns : 0), sums_{parts,           columns,
                                                               second_column,   partial_.data(),
                                                               {first, second}, context().arrival_counters} {
    const int64_t counters = strips * (groups_of_parts(parts) + 1);
    if (counters <= kMaxArrivalCounters || !partial_.data()) return;
    counters_.emplace(counters);
    sums_.arrival_counters = counters_->data();
    fill_zero(sums_.arrival_counters, counters * static_cast<int64_t>(sizeof(unsigned)));
  }
  const ColumnSums<T>& sums() const { return sums_; }

 private:
  Scratch<T> partial_;
  std::optional<Scratch<unsigned>> counters_;
  ColumnSums<T> sums_;
};

// Counts the block at `arrival_counters`. Returns true if `expected` blocks have arrived; the calling block
// then sees their writes, and the counter is 0 again. All threads of the block call the function.
__device__ inline bool is_last_block(unsigned* arrival_counters, int64_t expected) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicAdd(arrival_counters, 1U) + 1 == static_cast<unsigned>(expected);
    if (last) *arrival_counters = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Reads an element that another block has written. The load bypasses the L1 cache, which may contain an old
// value of an adjacent element.
template <class T>
__device__ T load_of_other_block(const T* element) {
#ifdef __CUDA_ARCH__
  return __ldcg(element);
#else
  return *element;
#endif
}

// Adds `count` rows of partial sums, `step` rows apart, in the columns [begin, end). Calls
// write(column, sum) for each column.
template <class T, class F>
__device__ void add_parts(const ColumnSums<T>& sums, int64_t first, int64_t count, int64_t step,
                          int64_t begin, int64_t end, F&& write) {
  const int64_t thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int64_t column = begin + thread; column < end; column += blockDim.x * blockDim.y) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i)
      sum +=
          static_cast<double>(load_of_other_block(sums.partial + (first + i * step) * sums.columns + column));
    write(column, static_cast<T>(sum));
  }
}

// Completes the sums of the columns [begin, end), of which the calling block has written part number `part`.
// The columns are strip number `strip` of the launch. All threads of all blocks call the function.
template <class T>
__device__ void collect_columns(const ColumnSums<T>& sums, int64_t part, int64_t strip, int64_t begin,
                                int64_t end) {
  const int64_t groups = groups_of_parts(sums.parts), group = part / kPartsOfGroup;
  const int64_t first = group * kPartsOfGroup, left = sums.parts - first;
  const int64_t count = left < kPartsOfGroup ? left : kPartsOfGroup;
  unsigned* const arrival_counters = sums.arrival_counters + strip * (groups + 1);
  if (!is_last_block(arrival_counters + group, count)) return;
  // The sums of a group replace its first part.
  add_parts(sums, first, count, 1, begin, end,
            [&](int64_t column, T sum) { sums.partial[first * sums.columns + column] = sum; });
  if (!is_last_block(arrival_counters + groups, groups)) return;
  add_parts(sums, 0, groups, kPartsOfGroup, begin, end, [&](int64_t column, T sum) {
    const bool second = column >= sums.second_column;
    T* const target = second ? sums.targets[1] : sums.targets[0];
    if (target) target[second ? column - sums.second_column : column] = sum;
  });
}

}  // namespace tapeformer::cuda
