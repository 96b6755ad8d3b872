#include "core/base/shape.h"

#include <algorithm>
#include <ostream>

#include "core/base/errors.h"

namespace tapeformer {

Shape::Shape(std::initializer_list<int64_t> sizes) {
  for (const int64_t size : sizes) append(size);
}

Shape Shape::filled(int rank, int64_t value) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.append(value);
  return shape;
}

void Shape::append(int64_t size) {
  check(rank_ < kMaxRank, "shape", "at most ", kMaxRank, " dimensions are supported");
  sizes_[static_cast<size_t>(rank_++)] = size;
}

int64_t Shape::numel() const {
  // Maximum number of elements. A tensor of this size has 2^62 bytes in the widest dtype.
  constexpr int64_t kLimit = int64_t{1} << 59;
  int64_t product = 1;
  bool overflow = false;
  for (const int64_t size : *this) {
    check(size >= 0, "shape", "negative size in ", *this);
    if (size == 0) return 0;
    overflow = overflow || __builtin_mul_overflow(product, size, &product);
  }
  check(!overflow && product <= kLimit, "shape", *this, " has too many elements");
  return product;
}

Shape Shape::contiguous_strides() const {
  Shape strides = *this;
  int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>((*this)[i], 1);
  }
  return strides;
}

std::string Shape::to_string() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + (rank_ == 1 ? ",)" : ")");
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.to_string();
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = Shape::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t from_a = i <= a.rank() ? a[-i] : 1;
    const int64_t from_b = i <= b.rank() ? b[-i] : 1;
    check(from_a == from_b || from_a == 1 || from_b == 1, op, "shapes ", a, " and ", b,
          " do not broadcast together");
    out[-i] = from_a == 1 ? from_b : from_a;
  }
  return out;
}

int normalize_dim(const char* op, int dim, int rank) {
  check(dim >= -rank && dim < rank, op, "dimension ", dim, " is out of range for ", rank, " dimensions");
  return dim < 0 ? dim + rank : dim;
}

}  // namespace tapeformer
