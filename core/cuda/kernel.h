// Device functions that many kernels use: loops over elements, reductions of a warp or a block in a fixed
// order, elementary functions, random numbers, and loads and stores of several elements. For .cu files only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/base/dtype.h"
#include "core/cuda/launch.h"
#include "core/random/dropout.h"
#include "core/scratch.h"

// TAPEFORMER_FLOAT and TAPEFORMER_DOUBLE enclose the explicit instantiations of a file for float and for
// double. nvcc compiles some files once per type (cmake/TapeformerCuda.cmake). If TAPEFORMER_ONLY_FLOAT is
// defined, TAPEFORMER_DOUBLE is empty. If TAPEFORMER_ONLY_DOUBLE is defined, TAPEFORMER_FLOAT is empty.
#ifdef TAPEFORMER_ONLY_DOUBLE
#define TAPEFORMER_FLOAT(...)
#else
#define TAPEFORMER_FLOAT(...) __VA_ARGS__
#endif
#ifdef TAPEFORMER_ONLY_FLOAT
#define TAPEFORMER_DOUBLE(...)
#else
#define TAPEFORMER_DOUBLE(...) __VA_ARGS__
#endif

namespace tapeformer::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

// first_element() and element_stride() return the start and the step of a grid-stride loop over n elements:
//   for (int64_t i = first_element(); i < n; i += element_stride())
__device__ inline int64_t first_element() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline int64_t element_stride() {
  return int64_t{gridDim.x} * blockDim.x;
}

// Returns the address of the dynamic shared memory of the block, which is aligned to 16 bytes. The launch
// sets the size (LaunchConfig::shared_bytes).
template <class T>
__device__ T* get_dynamic_shared_memory() {
#ifdef TAPEFORMER_CUDA_EMULATED
  return static_cast<T*>(emulation::dynamic_shared_memory());
#else
  extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
#endif
}

// Elementary functions for kernels. The names are the same as in VectorMath (core/cpu/vector_math.h), so both
// backends can use the same function objects.
struct DeviceMath {
  template <class T>
  __device__ static T exp(T x) {
    return std::exp(x);
  }
  // Returns exp(min(x, 0)).
  template <class T>
  __device__ static T exp_nonpositive(T x) {
    return std::exp(x > 0 ? T{0} : x);
  }
  template <class T>
  __device__ static T expm1(T x) {
    return std::expm1(x);
  }
  template <class T>
  __device__ static T log(T x) {
    return std::log(x);
  }
  template <class T>
  __device__ static T log1p(T x) {
    return std::log1p(x);
  }
  template <class T>
  __device__ static T sqrt(T x) {
    return std::sqrt(x);
  }
  template <class T>
  __device__ static T tanh(T x) {
    return std::tanh(x);
  }
  template <class T>
  __device__ static T erf(T x) {
    return std::erf(x);
  }
  // Returns log(1 + exp(x)).
  template <class T>
  __device__ static T softplus(T x) {
    return (x < 0 ? T{0} : x) + std::log1p(std::exp(-std::fabs(x)));
  }
  template <class T>
  __device__ static T sigmoid(T x) {
    const T e = std::exp(-std::fabs(x));
    return (x < 0 ? e : T{1}) / (1 + e);
  }
};

// Returns 2^x. In float, the relative error is at most 2^-22, and denormal results are 0.
__device__ inline double fast_exp2(double x) {
  return std::exp2(x);
}
__device__ inline float fast_exp2(float x) {
#ifdef TAPEFORMER_CUDA_EMULATED
  return std::exp2(x);
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

// Returns 1 / x. For float, the error is at most 1 ulp if x and 1 / x are normal numbers.
__device__ inline double fast_reciprocal(double x) {
  return 1 / x;
}
__device__ inline float fast_reciprocal(float x) {
#ifdef TAPEFORMER_CUDA_EMULATED
  return 1 / x;
#else
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// DeviceMath with faster functions exp() and exp_nonpositive(). For float, exp() and exp_nonpositive() take a
// third of the instructions of the same functions in DeviceMath. For float, the relative error of the two
// functions is at most 2^-22 + |x| 2^-24, and denormal results are 0.
struct FastDeviceMath : DeviceMath {
  template <class T>
  __device__ static T exp(T x) {
    return fast_exp2(std::numbers::log2e_v<T> * x);
  }
  template <class T>
  __device__ static T exp_nonpositive(T x) {
    return exp(x > 0 ? T{0} : x);
  }
};

// Binary operations, for the template parameter Operation of warp_reduce() and block_reduce().
struct Plus {
  template <class T>
  __device__ static T apply(T a, T b) {
    return a + b;
  }
};
struct Maximum {
  template <class T>
  __device__ static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

// Reduces `value` over the 32 lanes of a warp, and returns the result in every lane. All lanes must call the
// function.
template <class Operation, class T>
__device__ T warp_reduce(T value) {
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2)
    value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
  return value;
}

// Reduces `value` over the threads of a block, and returns the result in every thread. The order of the
// operations depends only on the block size, which must be a multiple of the warp size. All threads of the
// block must call the function.
template <class Operation, class T>
__device__ T block_reduce(T value) {
  __shared__ T warp_values[kWarpSize];
  value = warp_reduce<Operation>(value);
  const int warp_count = static_cast<int>(blockDim.x) / kWarpSize, thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // waits until all threads have read warp_values in the previous call
  if (thread % kWarpSize == 0) warp_values[thread / kWarpSize] = value;
  __syncthreads();
  value = warp_values[0];
  for (int warp = 1; warp < warp_count; ++warp) value = Operation::apply(value, warp_values[warp]);
  return value;
}
template <class T>
__device__ T block_sum(T value) {
  return block_reduce<Plus>(value);
}
template <class T>
__device__ T block_max(T value) {
  return block_reduce<Maximum>(value);
}

// The unroll factor of loops over the elements of a thread, as in "#pragma unroll (kUnrollFactor<T>)". For
// double, the factor is 1: only tests use double, and unrolled kernels in double would take most of the
// compile time.
template <class T, int kFactor = 64>
inline constexpr int kUnrollFactor = sizeof(T) > 4 ? 1 : kFactor;

// A step number or position that advances with each replay of a CUDA graph (core/cuda/graph.h). The host
// constructs the object while it launches a kernel, and passes it to the kernel by value.
class GraphStep {
 public:
  explicit GraphStep(int64_t recorded) : recorded_(recorded), step_offset_(get_context().step_offset) {}
  // Returns the step of the current replay. Outside of a graph, returns the step given to the constructor.
  __device__ int64_t current_step() const { return recorded_ + (step_offset_ ? __ldg(step_offset_) : 0); }

 private:
  int64_t recorded_;
  const int64_t* step_offset_;
};

// A RandomStream whose step advances with each replay of a CUDA graph, like a GraphStep.
class GraphRandomStream {
 public:
  explicit GraphRandomStream(const RandomStream& stream)
      : stream_(stream), step_(static_cast<int64_t>(stream.step())) {}
  // Returns the stream at the step of the current replay.
  __device__ RandomStream current_stream() const {
    return stream_.at_step(static_cast<uint64_t>(step_.current_step()));
  }

 private:
  RandomStream stream_;
  GraphStep step_;
};

// A DropoutMask for use in kernels. The host constructs the object from a DropoutMask and passes it to a
// kernel by value.
template <class T>
struct DropoutMultipliers {
  GraphRandomStream stream;
  int64_t offset;      // index of the tensor's first element in the stream
  uint32_t threshold;  // an element is kept if its 16 random bits are at least this number
  T scale;             // multiplier of kept elements, 1 / (1 - p)

  explicit DropoutMultipliers(const DropoutMask& mask)
      : stream(mask.stream),
        offset(mask.offset),
        threshold(mask.is_active() ? mask.threshold() : 0),
        scale(static_cast<T>(mask.scale())) {}
  // Returns the multiplier of element i, which is 0 or `scale`.
  __device__ T multiplier(int64_t i) const {
    if (threshold == 0) return scale;
    return stream.current_stream().bits16(static_cast<uint64_t>(offset + i)) >= threshold ? scale : T{0};
  }
  // Returns 8 bits. Bit j is 1 if the element with the index 8 * group + j in the stream is kept. Requires
  // that `threshold` is not 0.
  __device__ uint8_t compute_keep_mask(int64_t group) const {
    const PhiloxBlock random_bits = stream.current_stream().block(static_cast<uint64_t>(group));
    // An element is kept if its word is greater than `last_dropped`, because the random bits of the element
    // are the upper half of the word.
    const uint32_t last_dropped = (threshold - 1) << 16 | 0xFFFF;
    unsigned mask = 0;
    for (unsigned j = 0; j < 8; ++j) {
      const uint32_t word = random_bits[j / 2];
      mask |= static_cast<unsigned>((j % 2 ? word : word << 16) > last_dropped) << j;
    }
    return static_cast<uint8_t>(mask);
  }
  // Writes the multipliers of the elements i to i + kCount - 1 to `factors`.
  template <int kCount>
  __device__ void fill_multipliers(int64_t i, T* factors) const {
    static_assert(kCount <= 4);
    uint64_t bits16 = 0;  // 16 random bits for each element, beginning with element i in the lowest bits
    if (threshold != 0) {
      const RandomStream current = stream.current_stream();
#pragma unroll 1  // the loop has one or two iterations, and the code of a Philox block is large
      for (int drawn = 0; drawn < kCount;) {
        const auto element = static_cast<uint64_t>(offset + i + drawn);
        const PhiloxBlock bits = current.block(element / 8);
        const uint64_t low = uint64_t{bits[1]} << 32 | bits[0], high = uint64_t{bits[3]} << 32 | bits[2];
        const int slot = static_cast<int>(element % 8), shift = slot % 4 * 16;
        const uint64_t shifted = slot < 4 ? low >> shift | high << 1 << (63 - shift) : high >> shift;
        bits16 |= shifted << (16 * drawn);
        drawn += 8 - slot;
      }
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j)
      factors[j] = static_cast<uint16_t>(bits16 >> (16 * j)) >= threshold ? scale : T{0};
  }
};

// Elements of type T that fill 16 bytes, for 16-byte loads and stores. Addresses must be multiples of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];

  __device__ static Pack load(const T* source) { return *reinterpret_cast<const Pack*>(source); }
  // Returns load(source) if `exists` is true, otherwise zeros.
  __device__ static Pack load_or_zero(const T* source, bool exists) {
    Pack<uint32_t> words{};  // nvcc would insert the zeros of a Pack<BFloat16> element by element
    if (exists) words = *reinterpret_cast<const Pack<uint32_t>*>(source);
    return std::bit_cast<Pack>(words);
  }
  __device__ void store(T* target) const { *reinterpret_cast<Pack*>(target) = *this; }
};

// V adjacent elements in memory, which one instruction can load or store. V is a power of two, and addresses
// must be multiples of V * sizeof(S). load_group() and store_group() convert between S, the type in memory,
// and T, the type in registers.
template <int V, class S>
struct alignas(V * sizeof(S)) Group {
  S values[V];
};
template <int V, class S, class T>
__device__ void load_group(const S* from, T* values) {
  const auto group = *reinterpret_cast<const Group<V, S>*>(from);
#pragma unroll(kUnrollFactor <T>)
  for (int v = 0; v < V; ++v) values[v] = convert_element<T>(group.values[v]);
}
template <int V, class S, class T>
__device__ void store_group(S* to, const T* values) {
  Group<V, S> group;
#pragma unroll(kUnrollFactor <T>)
  for (int v = 0; v < V; ++v) group.values[v] = convert_element<S>(values[v]);
  *reinterpret_cast<Group<V, S>*>(to) = group;
}

}  // namespace tapeformer::cuda
