// Element types of tensors.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "core/base/errors.h"
#include "core/base/host_device.h"

namespace tapeformer {

enum class DType : uint8_t { float32, float64, bfloat16, int32, int64, uint8 };

// The upper 16 bits of a float32. The type only stores values; arithmetic is done in float32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  TAPEFORMER_HOST_DEVICE explicit BFloat16(float value) { set(value); }
  // Rounds to nearest even; NaN becomes a quiet NaN. In loops that the compiler vectorizes, call
  // x.set(value): the temporary object of x = BFloat16(value) prevents it.
  TAPEFORMER_HOST_DEVICE void set(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    bits =
        value != value ? uint16_t{0x7FC0} : static_cast<uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  TAPEFORMER_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::bfloat16:
      return 2;
    case DType::uint8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16;
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::float32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::float64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bfloat16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::int32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::int64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::uint8;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOf<T>::value;

// Returns the value converted to another element type.
template <class To, class From>
TAPEFORMER_HOST_DEVICE To convert_element(From value) {
  if constexpr (std::is_same_v<From, BFloat16>)
    return convert_element<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, BFloat16>)
    return BFloat16(static_cast<float>(value));
  else
    return static_cast<To>(value);
}

// Assigns `value` converted to the type of `element`, in a form that the compiler vectorizes (BFloat16::set).
template <class T, class C>
void set_element(T& element, C value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    element.set(value);
  else
    element = static_cast<T>(value);
}

// The type in which kernels compute with elements of type T: float if T is BFloat16, otherwise T.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

constexpr DType get_compute_dtype(DType dtype) {
  return dtype == DType::bfloat16 ? DType::float32 : dtype;
}

// Calls f(T{}), where T is the C++ type of `dtype`: float, double or BFloat16. For other dtypes, throws
// ShapeError with the name of the op.
template <class F>
decltype(auto) visit_floating_dtype(const char* op, DType dtype, F&& f) {
  if (dtype == DType::bfloat16) return f(BFloat16{});
  if (dtype == DType::float64) return f(double{});
  check(dtype == DType::float32, op, "needs float32, float64 or bfloat16, not ", name_of(dtype));
  return f(float{});
}

// Calls f(T{}), where T is the C++ type of `dtype`: uint8_t, int32_t or int64_t. For other dtypes, throws
// ShapeError with the name of the op.
template <class F>
decltype(auto) visit_index_dtype(const char* op, DType dtype, F&& f) {
  if (dtype == DType::uint8) return f(uint8_t{});
  if (dtype == DType::int32) return f(int32_t{});
  check(dtype == DType::int64, op, "needs integer indices (uint8, int32 or int64), not ", name_of(dtype));
  return f(int64_t{});
}

// Calls f(T{}), where T is the C++ type of `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64:
      return f(double{});
    case DType::bfloat16:
      return f(BFloat16{});
    case DType::int32:
      return f(int32_t{});
    case DType::int64:
      return f(int64_t{});
    case DType::uint8:
      return f(uint8_t{});
    case DType::float32:
      break;
  }
  return f(float{});
}

}  // namespace tapeformer
