#include <optional>
#include <vector>

#include "core/base/instances.h"
#include "core/scratch.h"
#include "ops/cpu/int8_operand.h"
#include "ops/cpu/linear_rows.h"
#include "ops/cpu/packed_operand.h"
#include "ops/cpu/recurrent_operand.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kColumnGroup = 64;  // the first column of a slice is a multiple of this number

}  // namespace

void round_to_int8_blocks(int64_t rows, int64_t columns, float* w) {
  parallel_for(rows, kMinMultiplicationsPerThread / std::max<int64_t>(columns, 1) + 1,
               [&](int64_t first, int64_t last) {
                 for (int64_t row = first; row < last; ++row)
                   for (int64_t k = 0; k < columns; k += kInt8Block) {
                     float* const block = w + row * columns + k;
                     const int64_t count = std::min(kInt8Block, columns - k);
                     const float scale = compute_int8_scale(block, count);
                     for (int64_t i = 0; i < count; ++i)
                       block[i] = scale * static_cast<float>(round_to_int8(block[i], scale));
                   }
               });
}

template <class O>
struct DecodingWeight<O>::Storage {
  // Some columns of the packed weight. The products of bfloat16 operands must not depend on the number of
  // rows: the next layers round their results to bfloat16, which makes small differences large.
  struct Slice {
    Slice(const LinearShape& shape, const T* w, int64_t first, int64_t count, WeightFormat format)
        : begin(first), columns(count) {
      const T* const rows = w + first * shape.in;
      if constexpr (std::is_same_v<O, float>)
        if (format == WeightFormat::int8) {
          int8.emplace(shape.in, count, rows, shape.out);
          return;
        }
      if (std::is_same_v<O, BFloat16> || shape.rows <= kMaxRowsWithoutPacking)
        small.emplace(shape.in, count, rows, true, shape.out, shape.out - first);
      else
        large.emplace(shape.in, count, rows, true, shape.out);
    }
    void multiply(int64_t rows, const O* x, T* y) const {
      if constexpr (std::is_same_v<O, float>)
        if (int8) return int8->multiply(rows, x, y + begin);
      small ? small->multiply(rows, x, y + begin) : large->multiply(rows, x, y + begin);
    }
    int64_t begin, columns;
    std::optional<RecurrentOperand<O>> small;
    std::optional<PackedOperand<O>> large;
    std::optional<Int8Operand> int8;
  };
  std::vector<std::unique_ptr<const Slice>> slices;
  std::optional<Scratch<O>> input;  // the input, rounded to O
};

template <class O>
DecodingWeight<O>::DecodingWeight(const LinearShape& shape, const T* w, WeightFormat format)
    : shape_(shape), storage_(std::make_unique<Storage>()) {
  const int64_t in = shape.in, out = shape.out;
  if (!std::is_same_v<O, T>) storage_->input.emplace(shape.rows * in);
  const int64_t groups = (out + kColumnGroup - 1) / kColumnGroup;
  const int64_t grain =
      kMinMultiplicationsPerThread / std::max<int64_t>(shape.rows * in * kColumnGroup, 1) + 1;
  const int64_t slices = std::clamp<int64_t>(groups / grain, 1, get_thread_count());
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t begin = groups * i / slices * kColumnGroup,
                  end = std::min(groups * (i + 1) / slices * kColumnGroup, out);
    storage_->slices.push_back(
        std::make_unique<const typename Storage::Slice>(shape, w, begin, end - begin, format));
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
  parallel_for(static_cast<int64_t>(storage_->slices.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const auto& slice = *storage_->slices[static_cast<size_t>(i)];
      slice.multiply(rows, left, y);
      finish(slice.begin, slice.columns);
    }
  });
}

template class DecodingWeight<float>;
template class DecodingWeight<double>;
template class DecodingWeight<BFloat16>;

}  // namespace tapeformer::cpu
