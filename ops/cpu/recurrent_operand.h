// The right operand of products with few rows, for decoding and for the steps of a recurrence.
#pragma once

#include <optional>
#include <type_traits>

#include "ops/cpu/growing_memory.h"
#include "ops/cpu/packed_operand.h"
#include "ops/cpu/panel_product.h"

namespace tapeformer::cpu {

// The packed right operand of the products of a recurrence or of decoding. Operands have type O (float,
// double or BFloat16), and sums have type Compute<O>. The result of a row does not depend on the number of
// rows.
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
  // elements to O. out_stride is the row stride of results in elements, and `room` is the number of elements
  // from the start of a row that multiply() may overwrite. The default of both, 0, selects out_stride(),
  // which has room for whole panels.
  RecurrentOperand(int64_t depth, int64_t columns, const T* b, bool transposed, int64_t out_stride = 0,
                   int64_t room = 0)
      : depth_(depth),
        columns_(columns),
        out_stride_(out_stride > 0 ? out_stride : round_up_to_tile_columns<T>(columns)),
        room_(room > 0 ? room : out_stride_) {
    if constexpr (kRoundsOperands) {
      if (uses_amx()) {
        packed_operand_.emplace(depth, columns, b, transposed, out_stride_);
        return;
      }
      const Scratch<O> rounded(depth * columns);
      narrow(b, depth * columns, rounded.data());
      if (depth % 2 == 0 && prefers_bfloat16_dot_products(kHasDotProductInstructions)) {
        pack_pairs(rounded.data(), transposed);
        return;
      }
      const Scratch<T> panels(panel_elements());
      pack(rounded.data(), transposed, panels.data());
      panels_.emplace(panel_elements());
      narrow(panels.data(), panel_elements(), panels_->data());
    } else {
      panels_.emplace(panel_elements());
      pack(b, transposed, panels_->data());
    }
  }

  int64_t out_stride() const { return out_stride_; }

  // Computes out (rows, columns) = a (rows, depth) b for a contiguous `a`.
  void multiply(int64_t rows, const O* a, T* out) const {
    const auto multiply_by_panels = [&](const auto* left) {
      multiply_panels(rows, columns_, depth_, left, depth_, panels_->data(), out, out_stride_, room_);
    };
    if constexpr (kRoundsOperands) {
      if (packed_operand_) return packed_operand_->multiply(rows, a, out);
      if (has_pairs_) return multiply_by_panels(a);
      thread_local GrowingMemory memory;
      T* const widened = memory.get<T>(rows * depth_);
      widen(a, rows * depth_, widened);
      multiply_by_panels(widened);
    } else {
      multiply_by_panels(a);
    }
  }

 private:
  static constexpr bool kRoundsOperands = std::is_same_v<O, BFloat16>;

  int64_t panel_elements() const { return round_up_to_tile_columns<T>(columns_) * depth_; }

  template <class S>
  void pack(const S* b, bool transposed, T* panels) {
    if (transposed)
      pack_rows(b, depth_, columns_, depth_, panels);
    else
      pack_columns(b, columns_, depth_, columns_, T{1}, depth_, panels);
  }
  // Packs b in panels of pairs (tile_product.h), the right operands of dot-product instructions.
  void pack_pairs(const BFloat16* b, bool transposed) {
    has_pairs_ = true;
    panels_.emplace(panel_elements());
    if (transposed)
      pack_rows(b, depth_, columns_, depth_, depth_, panels_->data());
    else
      pack_columns(b, columns_, depth_, columns_, depth_, panels_->data());
  }

  int64_t depth_, columns_, out_stride_, room_;
  std::optional<PackedOperand<O>> packed_operand_;  // the packed matrix b if AMX is used
  std::optional<Scratch<O>> panels_;                // the packed matrix b in all other cases
  bool has_pairs_ = false;                          // whether the panels contain pairs
};

}  // namespace tapeformer::cpu
