#include "ops/cpu/packed_operand.h"

#include <type_traits>

#include "core/cpu/bfloat16.h"
#include "core/threads/threads.h"
#include "ops/cpu/amx.h"
#include "ops/cpu/growing_memory.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/packed_product.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/linear.h"

namespace tapeformer::cpu {
namespace {

// True if amx.h supports operands of type O.
template <class O>
constexpr bool kHasAmxProducts = amx::kIsBuilt && !std::is_same_v<O, double>;

constexpr int64_t kGrain = 1 << 17;   // minimum number of elements packed per thread
constexpr int64_t kWidenedRows = 64;  // number of rows that multiply() widens to float at a time

thread_local GrowingMemory left_memory, right_memory;  // BFloat16 operands, widened to float

// If `wanted` is bfloat16 and neither AMX nor oneDNN has fast bfloat16 products on this processor, returns
// float32. Otherwise returns `wanted`.
DType choose_operand_dtype(DType wanted) {
  if (wanted != DType::bfloat16 || uses_amx()) return wanted;
  if constexpr (onednn::kIsBuilt)
    if (onednn::is_fastest(wanted)) return wanted;
  return DType::float32;
}

const onednn::Product* library_product(DType operand, int64_t depth, int64_t columns, int64_t out_stride) {
  if constexpr (onednn::kIsBuilt)
    if (operand != DType::float64 && onednn::is_fastest(operand) && depth > 0 && columns > 0)
      return &onednn::get_product(operand, depth, columns, out_stride);
  return nullptr;
}

// Calls f(begin, end) in parallel for ranges of rows that begin at multiples of `group`. A row has `width`
// elements.
template <class F>
void for_row_groups(int64_t rows, int64_t group, int64_t width, F&& f) {
  const int64_t grain = kGrain / std::max<int64_t>(group * width, 1) + 1;
  parallel_for((rows + group - 1) / group, grain,
               [&](int64_t begin, int64_t end) { f(begin * group, std::min(end * group, rows)); });
}

}  // namespace

// In builds with oneDNN, the environment variable DNNL_MAX_CPU_ISA also applies to the AMX kernels in amx.h.
// For example, the value AVX512_CORE_BF16 disables these kernels.
bool uses_amx() {
  if constexpr (amx::kIsBuilt) {
    if constexpr (onednn::kIsBuilt)
      if (!onednn::is_amx_allowed()) return false;
    return amx::is_available();
  }
  return false;
}

std::string get_gemm_library_name() {
  if (uses_amx()) return "Tapeformer (AMX)";
  if constexpr (onednn::kIsBuilt)
    if (onednn::is_fastest(DType::float32)) return "oneDNN " + onednn::version();
  return "Tapeformer and OpenBLAS";
}

bool uses_bfloat16_instructions() {
  return choose_operand_dtype(DType::bfloat16) == DType::bfloat16;
}

template <class O>
PackedOperand<O>::PackedOperand(int64_t depth, int64_t columns, const T* b, bool transposed,
                                int64_t out_stride)
    : depth_(depth),
      columns_(columns),
      out_stride_(out_stride > 0 ? out_stride : columns),
      operand_dtype_(choose_operand_dtype(kDTypeOf<O>)),
      is_packed_for_amx_(kHasAmxProducts<O> && depth > 0 && uses_amx()),
      product_(is_packed_for_amx_ ? nullptr : library_product(operand_dtype_, depth, columns, out_stride_)) {
  if constexpr (std::is_same_v<O, BFloat16>)
    if (operand_dtype_ == DType::float32) {
      const Scratch<float> rounded(depth * columns);
      for_row_groups(depth * columns, 1, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) rounded.data()[i] = static_cast<float>(BFloat16(b[i]));
      });
      pack(rounded.data(), transposed);
      return;
    }
  pack(b, transposed);
}

template <class O>
void PackedOperand<O>::pack(const T* b, bool transposed) {
  if constexpr (kHasAmxProducts<O>)
    if (is_packed_for_amx_) {
      packed_data_.emplace(amx::compute_packed_bytes<O>(depth_, columns_));
      auto* const tiles = reinterpret_cast<BFloat16*>(packed_data_->data());
      return for_row_groups(columns_, amx::kPanelColumns, depth_, [&](int64_t begin, int64_t end) {
        amx::pack<O>(depth_, columns_, b, transposed, begin, end, tiles);
      });
    }
  if constexpr (onednn::kIsBuilt && std::is_same_v<T, float>)
    if (product_) {
      packed_data_.emplace(onednn::get_packed_bytes(*product_));
      return onednn::pack(*product_, b, transposed, packed_data_->data());
    }
  packed_data_.emplace(round_up_to_tile_columns<T>(columns_) * depth_ * int64_t{sizeof(T)});
  T* const panels = reinterpret_cast<T*>(packed_data_->data());
  for_row_groups(columns_, kTileColumns<T>, depth_, [&](int64_t begin, int64_t end) {
    if (transposed)
      pack_rows(b + begin * depth_, depth_, end - begin, depth_, panels + begin * depth_);
    else
      for (int64_t column = begin; column < end; column += kTileColumns<T>)
        pack_columns(b + column, columns_, depth_, std::min(kTileColumns<T>, end - column), T{1}, depth_,
                     panels + column * depth_);
  });
}

template <class O>
void PackedOperand<O>::multiply_converted(int64_t rows, const void* a, T* out) const {
  if constexpr (onednn::kIsBuilt && std::is_same_v<T, float>)
    if (product_) return onednn::multiply(*product_, rows, a, packed_data_->data(), out);
  if (depth_ == 0)
    for (int64_t row = 0; row < rows; ++row) std::fill_n(out + row * out_stride_, columns_, T{0});
  multiply_packed_panels(rows, columns_, depth_, static_cast<const T*>(a), depth_,
                         reinterpret_cast<const T*>(packed_data_->data()), out, out_stride_);
}

template <class O>
void PackedOperand<O>::multiply(int64_t rows, const O* a, T* out) const {
  if constexpr (kHasAmxProducts<O>)
    if (is_packed_for_amx_)
      return amx::multiply(rows, depth_, columns_, a, reinterpret_cast<const BFloat16*>(packed_data_->data()),
                           out, out_stride_);
  if (operand_dtype_ == kDTypeOf<O>) return multiply_converted(rows, a, out);
  if constexpr (std::is_same_v<O, BFloat16>) {
    float* const widened = left_memory.get<float>(std::min(rows, kWidenedRows) * depth_);
    for (int64_t row = 0; row < rows; row += kWidenedRows) {
      const int64_t count = std::min(kWidenedRows, rows - row);
      widen(a + row * depth_, count * depth_, widened);
      multiply_converted(count, widened, out + row * out_stride_);
    }
  }
}

template <class O>
void multiply_transposed_left(int64_t rows, int64_t m, int64_t n, const O* a, const O* b, bool add,
                              Compute<O>* out) {
  if (rows == 0 || m == 0 || n == 0) {
    if (!add) std::fill_n(out, m * n, Compute<O>{0});
    return;
  }
  if constexpr (kHasAmxProducts<O>)
    if (uses_amx()) return amx::multiply_transposed(rows, m, n, a, b, add, out);
  if constexpr (onednn::kIsBuilt && !std::is_same_v<O, double>)
    if (onednn::is_fastest(kDTypeOf<O>))
      return onednn::multiply_transposed(kDTypeOf<O>, rows, m, n, a, b, add, out);
  if constexpr (std::is_same_v<O, BFloat16>) {
    float *const left = left_memory.get<float>(rows * m), *const right = right_memory.get<float>(rows * n);
    widen(a, rows * m, left);
    widen(b, rows * n, right);
    multiply_transposed_left<float>(rows, m, n, left, right, add, out);
  } else {
    gemm(Backend{}, Gemm<O>{.transpose_a = true,
                            .m = m,
                            .n = n,
                            .k = rows,
                            .a = a,
                            .lda = m,
                            .b = b,
                            .ldb = n,
                            .beta = add ? O{1} : O{0},
                            .c = out,
                            .ldc = n});
  }
}

template class PackedOperand<float>;
template class PackedOperand<double>;
template class PackedOperand<BFloat16>;
template void multiply_transposed_left(int64_t, int64_t, int64_t, const float*, const float*, bool, float*);
template void multiply_transposed_left(int64_t, int64_t, int64_t, const double*, const double*, bool,
                                       double*);
template void multiply_transposed_left(int64_t, int64_t, int64_t, const BFloat16*, const BFloat16*, bool,
                                       float*);

}  // namespace tapeformer::cpu
