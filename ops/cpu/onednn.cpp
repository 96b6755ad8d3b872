#include "ops/cpu/onednn.h"

#include <algorithm>
#include <dnnl.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/base/errors.h"
#include "core/base/host_memory.h"
#include "core/cpu/bfloat16.h"
#include "core/threads/serial_libraries.h"
#include "core/threads/threads.h"
#include "ops/cpu/growing_memory.h"

namespace tapeformer::cpu::onednn {
namespace {

using dnnl::memory;

// multiply() computes the rows in blocks of kBlock rows, and the remaining rows in blocks of kLastBlock rows.
// If the last block is not full, it is padded with zeros.
constexpr int64_t kBlock = 64, kLastBlock = 16;
// multiply_transposed() sums over the rows in blocks of kDepth rows, and over the remaining rows in blocks of
// kLastDepth rows. If the last block is not full, it is padded with zeros.
constexpr int64_t kDepth = 256, kLastDepth = 64;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}
// On the CPU, execute() returns after the primitive has finished, so callers need not wait for the stream.
const dnnl::stream& stream() {
  thread_local const dnnl::stream thread_stream(engine());
  return thread_stream;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}
memory::desc row_major(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  return {{rows, columns}, type_of(dtype), {stride, 1}};
}
memory::desc row_major(DType dtype, int64_t rows, int64_t columns) {
  return row_major(dtype, rows, columns, columns);
}
memory::desc column_major(DType dtype, int64_t rows, int64_t columns) {
  return {{rows, columns}, type_of(dtype), {1, rows}};
}

thread_local GrowingMemory kernel_memory, left_memory, right_memory;

// A compiled matrix product. Threads may share a Kernel, because each thread has separate arguments and
// scratch memory.
class Kernel {
 public:
  Kernel(const memory::desc& a, const memory::desc& b, const memory::desc& out, bool add)
      : description_(describe(a, b, out, add)), matmul_(description_) {}

  memory::desc right() const { return description_.weights_desc(); }

  void operator()(const void* a, const void* b, float* out) const {
    const SerialOpenMpScope serial;
    const std::unordered_map<int, memory>& all = arguments();
    set_data(all.at(DNNL_ARG_SRC), a);
    set_data(all.at(DNNL_ARG_WEIGHTS), b);
    set_data(all.at(DNNL_ARG_DST), out);
    set_data(all.at(DNNL_ARG_SCRATCHPAD),
             kernel_memory.get<char>(static_cast<int64_t>(description_.scratchpad_desc().get_size())));
    matmul_.execute(stream(), all);
  }

 private:
  static dnnl::matmul::primitive_desc describe(const memory::desc& a, const memory::desc& b,
                                               const memory::desc& out, bool add) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum();
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    return {engine(), a, b, out, attributes};
#else
    return {dnnl::matmul::desc(a, b, out), attributes, engine()};
#endif
  }

  // Calls set_data_handle() only if the pointer has changed, because set_data_handle() writes zeros to the
  // padding of a packed matrix, which other threads can read at the same time.
  static void set_data(const memory& argument, const void* data) {
    if (argument.get_data_handle() != data) argument.set_data_handle(const_cast<void*>(data));
  }

  // Returns the arguments of the primitive for the calling thread, without data. The arguments are created
  // once per thread, because the creation of arguments for each block takes 3 % of a training step.
  const std::unordered_map<int, memory>& arguments() const {
    // Kernels are never destroyed, so their addresses are unique.
    thread_local std::unordered_map<const Kernel*, std::unordered_map<int, memory>> kernels;
    std::unordered_map<int, memory>& thread_arguments = kernels[this];
    if (thread_arguments.empty())
      thread_arguments = {
          {DNNL_ARG_SRC, {description_.src_desc(), engine(), DNNL_MEMORY_NONE}},
          {DNNL_ARG_WEIGHTS, {right(), engine(), DNNL_MEMORY_NONE}},
          {DNNL_ARG_DST, {description_.dst_desc(), engine(), DNNL_MEMORY_NONE}},
          {DNNL_ARG_SCRATCHPAD, {description_.scratchpad_desc(), engine(), DNNL_MEMORY_NONE}}};
    return thread_arguments;
  }

  dnnl::matmul::primitive_desc description_;
  dnnl::matmul matmul_;
};

// A compiled conversion of a matrix to another layout and type.
class Reorder {
 public:
  Reorder(const memory::desc& from, const memory::desc& to)
      : from_(from), to_(to), reorder_(dnnl::reorder::primitive_desc(engine(), from, engine(), to)) {}

  void operator()(const float* from, void* to) const {
    const SerialOpenMpScope serial;
    reorder_.execute(stream(), {{DNNL_ARG_FROM, {from_, engine(), const_cast<float*>(from)}},
                                {DNNL_ARG_TO, {to_, engine(), to}}});
  }

 private:
  memory::desc from_, to_;
  dnnl::reorder reorder_;
};

template <class Value, class Key, class Make>
const Value& get_cached(const Key& key, Make&& make) {
  static std::mutex mutex;
  static std::map<Key, std::unique_ptr<const Value>> cache;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Value>& value = cache[key];
  if (!value) {
    constexpr int64_t kCodeBytes = int64_t{64} << 20;
    // oneDNN crashes if there is no memory for the code that it compiles.
    if (!can_map_memory(kCodeBytes))
      throw OutOfMemoryError("out of memory: the address space has no room for the products of oneDNN");
    value = make();
  }
  return *value;
}

// Returns whether oneDNN uses all instruction sets in `extension`, which has one bit per instruction set.
bool is_present(dnnl::cpu_isa extension) {
  static const auto all = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (all & static_cast<unsigned>(extension)) == static_cast<unsigned>(extension);
}

const char* make_padded_copy(const char* from, int64_t bytes, int64_t padded, GrowingMemory& memory) {
  char* const copy = memory.get<char>(padded);
  std::copy_n(from, bytes, copy);
  std::fill_n(copy + bytes, padded - bytes, char{0});
  return copy;
}

}  // namespace

class Product {
 public:
  Product(DType operand, int64_t depth, int64_t columns, int64_t out_stride)
      : row_bytes_(depth * size_of(operand)),
        depth_(depth),
        columns_(columns),
        out_stride_(out_stride),
        result_stride_(columns == 1 ? 1 : out_stride),
        block_(row_major(operand, kBlock, depth),
               memory::desc({depth, columns}, type_of(operand), memory::format_tag::any),
               row_major(DType::float32, kBlock, columns, result_stride_), false),
        last_block_(row_major(operand, kLastBlock, depth), block_.right(),
                    row_major(DType::float32, kLastBlock, columns, result_stride_), false),
        slices_(reorders(row_major(DType::float32, depth, columns))),
        transposed_slices_(reorders(column_major(DType::float32, depth, columns))) {}

  memory::desc packed() const { return block_.right(); }

  void pack(const float* b, bool transposed, void* packed) const {
    const std::vector<Reorder>& slices = transposed ? transposed_slices_ : slices_;
    parallel_for(static_cast<int64_t>(slices.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) slices[static_cast<size_t>(i)](b, packed);
    });
  }

  void multiply(int64_t rows, const char* a, const void* packed, float* out) const {
    int64_t row = 0;
    if (result_stride_ == out_stride_) {
      for (; row + kBlock <= rows; row += kBlock)
        block_(a + row * row_bytes_, packed, out + row * out_stride_);
      for (; row + kLastBlock <= rows; row += kLastBlock)
        last_block_(a + row * row_bytes_, packed, out + row * out_stride_);
    }
    for (; row < rows; row += kLastBlock) {
      const int64_t count = std::min(kLastBlock, rows - row);
      const char* left = a + row * row_bytes_;
      if (count < kLastBlock)
        left = make_padded_copy(left, count * row_bytes_, kLastBlock * row_bytes_, left_memory);
      auto* const result = right_memory.get<float>(kLastBlock * result_stride_);
      last_block_(left, packed, result);
      for (int64_t r = 0; r < count; ++r)
        std::copy_n(result + r * result_stride_, columns_, out + (row + r) * out_stride_);
    }
  }

 private:
  // Returns the conversions that pack a matrix with the layout `from`. Each conversion packs one slice of
  // columns.
  std::vector<Reorder> reorders(const memory::desc& from) const {
    // The packed layout consists of blocks of columns, and each slice must begin at the start of a block. In
    // oneDNN 2.6, a block has 64 columns, so kSlice is a multiple of the block width. No slice but the only
    // one has one column, because oneDNN 3 ignores the row stride of such a slice.
    constexpr int64_t kSlice = 128;
    std::vector<Reorder> slices;
    for (int64_t column = 0, count = 0; column < columns_; column += count) {
      count = columns_ - column <= kSlice + 1 ? columns_ - column : kSlice;
      slices.emplace_back(from.submemory_desc({depth_, count}, {0, column}),
                          packed().submemory_desc({depth_, count}, {0, column}));
    }
    return slices;
  }

  int64_t row_bytes_, depth_, columns_, out_stride_;
  // The row stride of the results of oneDNN. oneDNN 3 ignores the row stride of a matrix with one column, so
  // such results are contiguous and copied.
  int64_t result_stride_;
  Kernel block_, last_block_;
  std::vector<Reorder> slices_, transposed_slices_;
};

bool is_fastest(DType operand) {
  if (operand == DType::bfloat16)
    return prefers_bfloat16_dot_products(true) && is_present(dnnl::cpu_isa::avx512_core_bf16);
  return is_present(dnnl::cpu_isa::avx512_core);
}

bool is_amx_allowed() {
  return is_present(dnnl::cpu_isa::avx512_core_amx);
}

std::string version() {
  const dnnl_version_t& loaded = *dnnl::version();
  return std::to_string(loaded.major) + "." + std::to_string(loaded.minor) + "." +
         std::to_string(loaded.patch);
}

const Product& get_product(DType operand, int64_t depth, int64_t columns, int64_t out_stride) {
  return get_cached<Product>(std::tuple(operand, depth, columns, out_stride), [&] {
    return std::make_unique<const Product>(operand, depth, columns, out_stride);
  });
}

int64_t get_packed_bytes(const Product& product) {
  return static_cast<int64_t>(product.packed().get_size());
}

void pack(const Product& product, const float* b, bool transposed, void* packed) {
  product.pack(b, transposed, packed);
}

void multiply(const Product& product, int64_t rows, const void* a, const void* packed, float* out) {
  product.multiply(rows, static_cast<const char*>(a), packed, out);
}

void gemm(const Gemm<float>& p) {
  const SerialOpenMpScope serial;
  const auto flag = [](bool transpose) { return transpose ? 'T' : 'N'; };
  dnnl::error::wrap_c_api(dnnl_sgemm(flag(p.transpose_a), flag(p.transpose_b), p.m, p.n, p.k, p.alpha, p.a,
                                     p.lda, p.b, p.ldb, p.beta, p.c, p.ldc),
                          "oneDNN rejected the arguments of a product");
}

void multiply_transposed(DType operand, int64_t rows, int64_t m, int64_t n, const void* a, const void* b,
                         bool add, float* out) {
  const int64_t left_bytes = m * size_of(operand), right_bytes = n * size_of(operand);
  const auto* left = static_cast<const char*>(a);
  const auto* right = static_cast<const char*>(b);
  // If `add` is false, the first block overwrites `out`. The other blocks add to `out`.
  const auto multiply_block = [&](int64_t depth, const void* block_left, const void* block_right) {
    get_cached<Kernel>(std::tuple(operand, depth, m, n, add), [&] {
      return std::make_unique<const Kernel>(column_major(operand, m, depth), row_major(operand, depth, n),
                                            row_major(DType::float32, m, n), add);
    })(block_left, block_right, out);
    add = true;
  };
  for (const int64_t depth : {kDepth, kLastDepth})
    for (; rows >= depth; rows -= depth, left += depth * left_bytes, right += depth * right_bytes)
      multiply_block(depth, left, right);
  if (rows > 0)
    multiply_block(kLastDepth,
                   make_padded_copy(left, rows * left_bytes, kLastDepth * left_bytes, left_memory),
                   make_padded_copy(right, rows * right_bytes, kLastDepth * right_bytes, right_memory));
}

}  // namespace tapeformer::cpu::onednn
