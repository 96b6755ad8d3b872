// The right operand of products with few rows, for the steps of a recurrence.
#pragma once

#include <optional>
#include <type_traits>

#include "ops/cpu/growing_memory.h"
#include "ops/cpu/packed_operand.h"
#include "ops/cpu/panel_product.h"

namespace tapeformer::cpu {

// The packed right operand of the products of a recurrence. Operands have type O (float, double or BFloat16),
// and sums have type Compute<O>.
//
// BFloat16 operands are multiplied with AMX if uses_amx() is true. Without AMX, they are multiplied with
// dot-product instructions if the depth is even and prefers_bfloat16_dot_products() is true, and converted to
// float in all other cases. The choice changes results slightly: the order of the sums is different, and AMX
// and dot-product instructions replace subnormal numbers by zero.
template <class O>
class RecurrentOperand {
 public:
  using T = Compute<O>;

  // Packs b (depth, columns), which is stored as (columns, depth) if `transposed` is true. Rounds the
  // elements to O.
  RecurrentOperand(int64_t depth, int64_t columns, const T* b, bool transposed)
      : depth_(depth), columns_(columns) {
    if constexpr (kRoundsOperands) {
      if (uses_amx()) {
        packed_operand_.emplace(depth, columns, b, transposed, out_stride());
        return;
      }
      const Scratch<O> rounded(depth * columns);
      narrow(b, depth * columns, rounded.data());
      if (depth % 2 == 0 && prefers_bfloat16_dot_products(kHasDotProductInstructions))
        pack_pairs(rounded.data(), transposed);
      else
        pack(rounded.data(), transposed);
    } else {
      pack(b, transposed);
    }
  }

  // Returns the row stride of results in elements. Rows have room for whole panels.
  int64_t out_stride() const { return round_up_to_tile_columns<T>(columns_); }

  // Computes out (rows, columns) = a (rows, depth) b for a contiguous `a`.
  void multiply(int64_t rows, const O* a, T* out) const {
    if constexpr (kRoundsOperands) {
      if (packed_operand_) return packed_operand_->multiply(rows, a, out);
      if (pair_panels_)
        return multiply_panels(rows, columns_, depth_, a, depth_, pair_panels_->data(), out, out_stride());
      thread_local GrowingMemory memory;
      T* const widened = memory.get<T>(rows * depth_);
      widen(a, rows * depth_, widened);
      multiply_panels(rows, columns_, depth_, widened, depth_, panels_->data(), out, out_stride());
    } else {
      multiply_panels(rows, columns_, depth_, a, depth_, panels_->data(), out, out_stride());
    }
  }

 private:
  static constexpr bool kRoundsOperands = std::is_same_v<O, BFloat16>;

  // Packs b in panels with elements of type T.
  template <class S>
  void pack(const S* b, bool transposed) {
    panels_.emplace(out_stride() * depth_);
    if (transposed)
      pack_rows(b, depth_, columns_, depth_, panels_->data());
    else
      pack_columns(b, columns_, depth_, columns_, T{1}, depth_, panels_->data());
  }
  // Packs b in panels of pairs (tile_product.h), the right operands of dot-product instructions.
  void pack_pairs(const BFloat16* b, bool transposed) {
    pair_panels_.emplace(out_stride() * depth_);
    if (transposed)
      pack_rows(b, depth_, columns_, depth_, depth_, pair_panels_->data());
    else
      pack_columns(b, columns_, depth_, columns_, depth_, pair_panels_->data());
  }

  int64_t depth_, columns_;
  // The packed matrix b. One of the three members has a value.
  std::optional<PackedOperand<O>> packed_operand_;
  std::optional<Scratch<BFloat16>> pair_panels_;
  std::optional<Scratch<T>> panels_;
};

}  // namespace tapeformer::cpu
