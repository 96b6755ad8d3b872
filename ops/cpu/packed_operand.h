// Matrix products a * b, where `a` has many rows and b is packed once, and matrix products aᵀ b, where `a`
// and b have many rows. The products run in the calling thread and use
// - amx.h for float and bfloat16 on processors with AMX,
// - oneDNN for float and bfloat16 without AMX, if onednn::is_fastest() is true,
// - packed_product.h and OpenBLAS in all other cases.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/cpu/bfloat16.h"
#include "core/cpu/vector.h"
#include "core/device_control.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

namespace onednn {
class Product;
}

// Returns whether amx.h computes the products of float and BFloat16 operands. Unlike oneDNN, amx.h does not
// pad the rows, so products with few rows are also fast.
bool uses_amx();

// Calls f.operator()<O>() with the type O to which products round inputs of type X. O is BFloat16 if X is
// float and the precision of the CPU is bfloat16. Otherwise, O is X.
template <class X, class F>
void visit_operand_type(F&& f) {
  if constexpr (std::is_same_v<X, float>)
    if (get_precision(kCpu) == Precision::bfloat16) return f.template operator()<BFloat16>();
  f.template operator()<X>();
}

// Returns `count` elements as type To: `from` itself if it has this type, otherwise a converted copy in
// `buffer`.
template <class To, class From>
const To* convert_if_needed(const From* from, int64_t count, To* buffer) {
  if constexpr (std::is_same_v<From, To>) {
    return from;
  } else {
    convert_elements(from, count, buffer);
    return buffer;
  }
}

// The packed right operand b of matrix products a * b. Operands have type O (float, double or BFloat16), and
// results have type Compute<O>.
//
// If the processor has no fast bfloat16 instructions, BFloat16 operands are converted to float before
// multiplication. The results of this conversion differ slightly from the results of bfloat16 instructions,
// because the order of the sums is different and subnormal numbers do not become zero.
template <class O>
class PackedOperand {
 public:
  using T = Compute<O>;

  // Packs b (depth, columns), which is stored as (columns, depth) if `transposed` is true. Rounds the
  // elements to O. Uses all threads if it is called outside of parallel loops. out_stride is the row stride
  // of results in elements; 0 selects `columns`.
  PackedOperand(int64_t depth, int64_t columns, const T* b, bool transposed, int64_t out_stride = 0);

  // Computes out (rows, columns) = a (rows, depth) b for a contiguous `a`.
  void multiply(int64_t rows, const O* a, T* out) const;

 private:
  void pack(const T* b, bool transposed);
  // Implements multiply() for elements of `a` that have the type operand_dtype_.
  void multiply_converted(int64_t rows, const void* a, T* out) const;

  int64_t depth_, columns_, out_stride_;
  DType operand_dtype_;  // type to which operands are rounded before multiplication
  bool is_packed_for_amx_;
  const onednn::Product* product_;  // nullptr if amx.h or packed_product.h computes the products
  std::optional<Scratch<char>> packed_data_;
};

// Computes out (m, n) = aᵀ b or, if `add` is true, out += aᵀ b, for contiguous a (rows, m) and b (rows, n).
template <class O>
void multiply_transposed_left(int64_t rows, int64_t m, int64_t n, const O* a, const O* b, bool add,
                              Compute<O>* out);

// Adds the `count` arrays of `size` elements in `partial` to `sums`, in the order of the arrays.
template <class T>
void add_partial_sums(const T* partial, int64_t count, int64_t size, T* sums) {
  // Maximum number of arrays that are read at the same time. Elements with the same index in many arrays can
  // belong to one set of the L1 cache, which holds 8 or 12 cache lines.
  constexpr int64_t kMaxArrays = 8;
  parallel_for(size, 1 << 15, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < count; first += kMaxArrays)
      for (int64_t i = begin; i < end; i += kLanes<T>) {
        Vector<T> sum = load_first(sums + i, end - i);
        for (int64_t part = first; part < std::min(first + kMaxArrays, count); ++part)
          sum += load_first(partial + part * size + i, end - i);
        store_first(sums + i, sum, end - i);
      }
  });
}

}  // namespace tapeformer::cpu
