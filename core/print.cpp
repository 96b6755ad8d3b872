#include <array>
#include <cstdio>
#include <ostream>

#include "core/tensor.h"

namespace tapeformer {
namespace {

constexpr int64_t kLongestInFull = 1000;  // maximum number of elements that are printed in full
constexpr int64_t kEdge = 3;              // number of indices printed at each end of a shortened dimension

class Printer {
 public:
  Printer(std::ostream& out, const Tensor& tensor)
      : out_(out),
        shape_(tensor.shape()),
        values_(tensor.to_vector()),
        shorten_(tensor.numel() > kLongestInFull) {}

  // Prints a slice of the tensor, in which the indices of all dimensions before `dim` are fixed. The slice
  // has `elements` elements and starts at values_[index].
  void print(int dim, int64_t index, int64_t elements) {
    if (dim == shape_.rank()) return print_number(values_[static_cast<size_t>(index)]);
    const int64_t size = shape_[dim];
    const int64_t stride = size ? elements / size : 0;
    const bool shorten = shorten_ && size > 2 * kEdge;
    // The spaces after a line break align the rows.
    const std::string separator =
        dim + 1 == shape_.rank() ? ", " : ",\n" + std::string(static_cast<size_t>(dim) + 1, ' ');
    out_ << '[';
    for (int64_t i = 0; i < size; ++i) {
      if (i > 0) out_ << separator;
      if (shorten && i == kEdge) {
        out_ << "..." << separator;
        i = size - kEdge;
      }
      print(dim + 1, index + i * stride, stride);
    }
    out_ << ']';
  }

 private:
  void print_number(double value) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.6g", value);
    out_ << text.data();
  }

  std::ostream& out_;
  Shape shape_;
  std::vector<double> values_;
  bool shorten_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined()) return out << "undefined tensor";
  Printer(out, tensor).print(0, 0, tensor.numel());
  return out << ' ' << tensor.shape() << ' ' << name_of(tensor.dtype());
}

}  // namespace tapeformer
