// Vectors of 32 bytes (8 floats, 4 doubles), for kernels that keep a tile of a matrix in registers. On
// machines with shorter vectors the compiler splits them.
#pragma once

#include <cstdint>
#include <cstring>

namespace tapeformer::cpu {

inline constexpr int64_t kVectorBytes = 32;
template <class T>
inline constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

namespace detail {
template <class T>
struct VectorOf {
  typedef T type [[gnu::vector_size(kVectorBytes)]];
};
}  // namespace detail
template <class T>
using Vector = typename detail::VectorOf<T>::type;

// Unaligned.
template <class T>
[[gnu::always_inline]] inline Vector<T> load(const T* source) {
  Vector<T> v;
  std::memcpy(&v, source, sizeof(v));
  return v;
}
template <class T>
[[gnu::always_inline]] inline void store(T* target, Vector<T> v) {
  std::memcpy(target, &v, sizeof(v));
}
// Sum of the lanes, by halves.
[[gnu::always_inline]] inline float sum(Vector<float> v) {
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 2, 3, 0, 1);
  return v[0] + v[1];
}
[[gnu::always_inline]] inline double sum(Vector<double> v) {
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
  return v[0] + v[1];
}

// Up to a whole vector; missing elements are zero.
template <class T>
[[gnu::always_inline]] inline Vector<T> load_some(const T* source, int64_t count) {
  if (count >= kLanes<T>) return load(source);
  Vector<T> v{};
  std::memcpy(&v, source, static_cast<size_t>(count) * sizeof(T));
  return v;
}
template <class T>
[[gnu::always_inline]] inline void store_some(T* target, Vector<T> v, int64_t count) {
  if (count >= kLanes<T>)
    store(target, v);
  else
    std::memcpy(target, &v, static_cast<size_t>(count) * sizeof(T));
}
// v with zeros from element `count` on.
template <class T>
[[gnu::always_inline]] inline Vector<T> keep_some(Vector<T> v, int64_t count) {
  return count >= kLanes<T> ? v : load_some(reinterpret_cast<const T*>(&v), count);
}

// x . y
template <class T>
T dot(const T* x, const T* y, int64_t count) {
  Vector<T> total{};
  for (; count >= kLanes<T>; count -= kLanes<T>, x += kLanes<T>, y += kLanes<T>) total += load(x) * load(y);
  if (count > 0) total += load_some(x, count) * load_some(y, count);
  return sum(total);
}

// Keeps a loaded vector in a register: the compiler would rather load it again at each use, and loads are
// what a tile of multiply-adds is short of.
template <class V>
[[gnu::always_inline]] inline void keep_in_register([[maybe_unused]] V& v) {
#ifdef __AVX__
  asm("" : "+x"(v));
#endif
}

// Smallest multiple of the vector length that is not below n.
template <class T>
constexpr int64_t padded(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

}  // namespace tapeformer::cpu
