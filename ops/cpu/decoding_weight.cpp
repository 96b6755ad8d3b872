#include <optional>
#include <vector>

#include "core/instances.h"
#include "core/scratch.h"
#include "ops/cpu/linear_rows.h"
#include "ops/cpu/packed_operand.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kColumnGroup = 64;  // the first column of a slice is a multiple of this number

}  // namespace

template <class O>
struct DecodingWeight<O>::Storage {
  struct Slice {
    Slice(const LinearShape& shape, const T* w, int64_t first, int64_t count)
        : begin(first), columns(count), weight(shape.in, count, w + first * shape.in, true, shape.out) {}
    int64_t begin, columns;
    PackedOperand<O> weight;
  };
  std::optional<Scratch<O>> weight;  // the weight in type O, if shape.rows <= kMaxRowsWithoutPacking
  std::vector<std::unique_ptr<const Slice>>
      slices;                       // the packed weight, if shape.rows > kMaxRowsWithoutPacking
  std::optional<Scratch<O>> input;  // the input, rounded to O
};

template <class O>
DecodingWeight<O>::DecodingWeight(const LinearShape& shape, const T* w)
    : shape_(shape), storage_(std::make_unique<Storage>()) {
  const int64_t in = shape.in, out = shape.out;
  if (!std::is_same_v<O, T>) storage_->input.emplace(shape.rows * in);
  if (shape.rows <= kMaxRowsWithoutPacking) {
    storage_->weight.emplace(out * in);
    convert_elements(w, out * in, storage_->weight->data());
    return;
  }
  const int64_t groups = (out + kColumnGroup - 1) / kColumnGroup;
  const int64_t grain =
      kMinMultiplicationsPerThread / std::max<int64_t>(shape.rows * in * kColumnGroup, 1) + 1;
  const int64_t slices = std::clamp<int64_t>(groups / grain, 1, get_thread_count());
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t begin = groups * i / slices * kColumnGroup,
                  end = std::min(groups * (i + 1) / slices * kColumnGroup, out);
    storage_->slices.push_back(std::make_unique<const typename Storage::Slice>(shape, w, begin, end - begin));
  }
}

template <class O>
DecodingWeight<O>::~DecodingWeight() = default;

template <class O>
void DecodingWeight<O>::forward(int64_t rows, const T* x, const T* bias, Activation activation,
                                T* preactivation, T* y) const {
  const int64_t in = shape_.in, out = shape_.out;
  const auto finish = [=](int64_t begin, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = r * out + begin;
      apply_epilogue<T, T>(y + at, bias ? bias + begin : nullptr, activation,
                           preactivation ? preactivation + at : nullptr, nullptr, columns);
    }
  };
  const O* const left = convert_if_needed(x, rows * in, storage_->input ? storage_->input->data() : nullptr);
  if (const auto& weight = storage_->weight) {
    if constexpr (std::is_same_v<O, BFloat16>)
      multiply_few_rows({rows, in, out}, left, weight->data(), y);
    else
      multiply_few_rows<O>({rows, in, out}, left, weight->data(), y);
    return finish(0, out);
  }
  parallel_for(static_cast<int64_t>(storage_->slices.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto& slice = *storage_->slices[static_cast<size_t>(i)];
      slice.weight.multiply(rows, left, y + slice.begin);
      finish(slice.begin, slice.columns);
    }
  });
}

template class DecodingWeight<float>;
template class DecodingWeight<double>;
template class DecodingWeight<BFloat16>;

}  // namespace tapeformer::cpu
