// A list of at most kMaxRank integers, which holds the sizes or the strides of a tensor. The integers are
// stored in the object itself, so a copy allocates no memory.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>

namespace tapeformer {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  static Shape filled(int rank, int64_t value);

  int rank() const { return rank_; }
  // Returns the size of a dimension. Negative dimensions count from the end. The index is not checked.
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  int64_t& operator[](int dim) { return sizes_[static_cast<size_t>(dim < 0 ? dim + rank_ : dim)]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

  // Returns the product of the sizes. Throws ShapeError if a size is negative, or if the product exceeds
  // 2^59 elements (2^62 bytes of the widest dtype).
  int64_t numel() const;
  void append(int64_t size);
  Shape contiguous_strides() const;
  std::string to_string() const;  // for example "(2, 3)"

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

// Returns the shape that both shapes broadcast to by the rules of NumPy. If the shapes are not compatible,
// throws ShapeError with both shapes in the message.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

// Returns `dim`, or dim + rank if `dim` is negative. Throws ShapeError if the dimension is out of range.
int normalize_dim(const char* op, int dim, int rank);

}  // namespace tapeformer
