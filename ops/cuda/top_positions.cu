#include "ops/kernels/top_positions.h"

#include <bit>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {
namespace {

constexpr int kSelectThreads = 256;
constexpr int kRadixBits = 8, kRadix = 1 << kRadixBits;

// Returns an unsigned integer by which numbers can be sorted: a larger `x` gives a larger integer, and equal
// numbers give equal integers. NaN gives the largest integer.
__device__ uint32_t make_sort_key(float x) {
  if (x != x) return 0xFFFFFFFF;
  const auto bits = std::bit_cast<uint32_t>(x == 0 ? 0.0F : x);
  return bits >> 31 ? ~bits : bits | 0x80000000;
}
__device__ uint64_t make_sort_key(double x) {
  if (x != x) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

// Replaces each of the kSelectThreads counters by the sum of the counters before it. All threads of the block
// call the function.
__device__ void compute_exclusive_sums(int* counters) {
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int i = 0; i < kSelectThreads; ++i) {
      const int counter = counters[i];
      counters[i] = sum;
      sum += counter;
    }
  }
  __syncthreads();
}

// Writes the positions of the `count` largest elements of a row to `positions`, in increasing order. Each
// thread block processes one row. Among equal elements, the elements at the lowest positions are selected.
//
// The first loop is a radix search. In each iteration, the loop finds the next digit of the sort key of the
// smallest selected element. After the loop, `prefix` is the complete sort key, and `remaining` is the number
// of selected elements with this key.
template <class T>
__global__ void select_kernel(const T* x, int64_t length, int64_t count, int64_t* positions) {
  __shared__ int histogram[kRadix], larger[kSelectThreads], equal[kSelectThreads];
  __shared__ int remaining, digit;
  const T* const row = x + blockIdx.x * length;
  const int thread = static_cast<int>(threadIdx.x);
  using Key = decltype(make_sort_key(T{}));
  constexpr int kBits = 8 * static_cast<int>(sizeof(Key));
  Key prefix = 0, mask = 0;
  if (thread == 0) remaining = static_cast<int>(count);
  for (int shift = kBits - kRadixBits; shift >= 0; shift -= kRadixBits) {
    histogram[thread] = 0;
    __syncthreads();
    for (int64_t i = thread; i < length; i += kSelectThreads) {
      const Key key = make_sort_key(row[i]);
      if ((key & mask) == prefix) atomicAdd(histogram + static_cast<int>(key >> shift & (kRadix - 1)), 1);
    }
    __syncthreads();
    if (thread == 0) {
      digit = kRadix - 1;
      for (; histogram[digit] < remaining; --digit) remaining -= histogram[digit];
    }
    __syncthreads();
    prefix |= static_cast<Key>(digit) << shift;
    mask |= static_cast<Key>(kRadix - 1) << shift;
    __syncthreads();  // waits until all threads have read `digit`
  }

  const int64_t elements_per_thread = (length + kSelectThreads - 1) / kSelectThreads;
  const int64_t begin = thread * elements_per_thread < length ? thread * elements_per_thread : length;
  const int64_t end = begin + elements_per_thread < length ? begin + elements_per_thread : length;
  larger[thread] = equal[thread] = 0;
  for (int64_t i = begin; i < end; ++i) {
    const Key key = make_sort_key(row[i]);
    larger[thread] += key > prefix;
    equal[thread] += key == prefix;
  }
  compute_exclusive_sums(larger);
  compute_exclusive_sums(equal);
  int larger_before = larger[thread], equal_before = equal[thread];
  int64_t* const to = positions + blockIdx.x * count;
  for (int64_t i = begin; i < end; ++i) {
    const Key key = make_sort_key(row[i]);
    const int equal_selected = equal_before < remaining ? equal_before : remaining;
    if (key > prefix || (key == prefix && equal_before < remaining)) to[larger_before + equal_selected] = i;
    larger_before += key > prefix;
    equal_before += key == prefix;
  }
}

}  // namespace

template <class T>
void select_top_k(Backend, const T* x, int64_t rows, int64_t length, int64_t count, int64_t* positions) {
  launch(select_kernel<T>, make_row_launch(rows, kSelectThreads), x, length, count, positions);
}

template <class T>
struct LargestKernels {
  inline static const FunctionInstances all{&select_top_k<T>};
};
template struct LargestKernels<float>;
template struct LargestKernels<double>;

}  // namespace tapeformer::cuda
