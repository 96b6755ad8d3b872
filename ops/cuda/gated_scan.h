// The scans of gated linear attention: their arguments, and the transfers of operands and results. S is the
// state, do is the gradient of `out`, E is the gradient of S, and Ŝ = Diag(exp(g)) S. There are four scans.
// The scans of E process the tokens in reverse order. Two scans have tiles of columns, because they compute
// sums over the rows of the state:
//   result           u = v - Ŝᵀp;  S = Ŝ + k uᵀ;  out = Sᵀq
//   value_gradient   E += q doᵀ;  du = dv = Eᵀk;  E -= p duᵀ;  E = Diag(exp(g)) E
// Two scans have tiles of rows. They use u and du, so that the rows are independent of each other:
//   query_gradient   dp = -Ŝ du;  S = Ŝ + k uᵀ;  dq = S do
//   key_gradient     E += q doᵀ;  dk = E u;  E -= p duᵀ;  E = Diag(exp(g)) E
#pragma once

#include "ops/cuda/state_tile.h"
#include "ops/kernels/gated_linear_attention.h"

namespace tapeformer::cuda {

enum class GatedScan { result, value_gradient, query_gradient, key_gradient };

// The arrays of a chunk. For each token, a vector has one element for each element of a line of the tile, and
// an array of numbers has one element for each line. The arrays q, k, p and exp(g) are vectors for tiles of
// columns, and numbers for tiles of rows. If all channels share g, exp(g) is an array of numbers.
inline constexpr int kQuery = 0, kKey = 1, kErase = 2, kDecay = 3;
// For tiles of columns, v or do is an array of numbers, and so are the results: out and u, or du.
inline constexpr int kColumnVectors = 4, kValue = 0, kColumnResults = 1, kColumnNumbers = 4;
// For tiles of rows, do, u and du are vectors. The results are dq, dp and q * dq + p * dp (kTerms), or dk and
// the gradient of g. The scan key_gradient reads kTerms.
inline constexpr int kRowVectors = 3, kGradient = 0, kWritten = 1, kWrittenGradient = 2;
inline constexpr int kTerms = 4, kRowResults = 5, kRowNumbers = 7;

template <class S, class T = Compute<S>>
struct GatedScanArguments {
  GatedLinearAttentionShape s;
  GatedLinearAttentionInputs<S> in;
  AttentionRows<const S> g = {}, u = {};  // `g` is do
  const T* gfinal_state = nullptr;
  // Arrays that one scan writes and another scan reads: du (batch, length, heads, value_dim), and the sums
  // q * dq + p * dp (batch, length, heads, dim). Null if they are not needed.
  AttentionRows<T> du = {}, terms = {};
  // Tiles of S, with tile_size() elements for each anchor and each block. Null if they are not needed.
  T* anchors = nullptr;
  int64_t anchors_per_block = 0;
  int chunks_per_anchor = 1;

  // Results, which are not written if they are null. If decay_dim is 1, gradients.glog_decay receives sums
  // over the lines of each tile. glog_decay_stride is the distance of the sums of two tiles.
  AttentionRows<S> out = {}, written = {};
  T* final_state = nullptr;
  GatedLinearAttentionGradients<S> gradients = {};
  int64_t glog_decay_stride = 0;

  TileLayout layout = {};
  T* workspace = nullptr;  // workspace_size() elements for each block
};

// A chunk of tokens. Positions of tokens are positions in the order of processing of the forward pass.
template <class T>
struct TokenChunk {
  int index, count;
  int64_t first;  // position of the first token
  T* memory;      // TileLayout::chunk_size elements
};

// The part of a head that a thread block processes. The threads that do not hold a tile, the loaders, load
// the operands of chunks and store the results.
template <class S, GatedScan kScan, class Shape, class T = Compute<S>>
class GatedScanBlock {
 public:
  static constexpr bool kHasColumns = kScan == GatedScan::result || kScan == GatedScan::value_gradient;
  static constexpr bool kIsReverse = kScan == GatedScan::value_gradient || kScan == GatedScan::key_gradient;

  __device__ explicit GatedScanBlock(const GatedScanArguments<S>& arguments)
      : a_(arguments),
        layout_(arguments.layout),
        block_(blockIdx.x * int64_t{gridDim.y} + blockIdx.y),
        example_(blockIdx.x / static_cast<unsigned>(arguments.s.heads)),
        head_(blockIdx.x % static_cast<unsigned>(arguments.s.heads)),
        valid_length_(get_valid_length(arguments.s.lengths, example_, arguments.s.length)),
        chunk_count_((static_cast<int>(valid_length_) + layout_.tokens - 1) / layout_.tokens),
        first_line_(static_cast<int>(blockIdx.y) * layout_.lines),
        valid_lines_(std::min(layout_.lines, layout_.line_count - first_line_)),
        loader_(static_cast<int>(threadIdx.x) - layout_.threads),
        loader_count_(static_cast<int>(blockDim.x) - layout_.threads) {}

  __device__ bool is_loader() const { return loader_ >= 0; }
  __device__ int chunk_count() const { return chunk_count_; }
  // Returns the chunk that is processed after `order` other chunks. Adjacent chunks have different memory.
  __device__ TokenChunk<T> find_chunk(int order) const {
    const int index = kIsReverse ? chunk_count_ - 1 - order : order;
    const int64_t first = int64_t{index} * layout_.tokens,
                  count = std::min(int64_t{layout_.tokens}, valid_length_ - first);
    const int offset = order % 2 * static_cast<int>(layout_.chunk_size);
    return {index, static_cast<int>(count), first, chunk_memory() + offset};
  }
  // Returns the address of an array of a chunk for token i of the chunk.
  __device__ T* find_vector(const TokenChunk<T>& chunk, int array, int i) const {
    return chunk.memory + i * token_size() + array * vector_size();
  }
  __device__ T* find_numbers(const TokenChunk<T>& chunk, int array, int i) const {
    return find_vector(chunk, kVectors, i) + array * numbers_size();
  }
  // Returns the memory of the tile if it is not in registers.
  __device__ T* workspace() const {
    return Shape::kIsInRegisters ? nullptr : a_.workspace + block_ * layout_.workspace_size();
  }
  // Returns whether exp(g) is a vector of a chunk.
  __device__ bool has_decay_vectors() const { return kHasColumns && a_.s.decay_dim > 1; }

  // Returns the memory for S after a chunk, or null if S is not saved after this chunk.
  __device__ T* find_anchor(const TokenChunk<T>& chunk) const {
    const bool is_last = chunk.index + 1 == chunk_count_;
    if (!a_.anchors || ((chunk.index + 1) % a_.chunks_per_anchor != 0 && !is_last)) return nullptr;
    return a_.anchors +
           (block_ * a_.anchors_per_block + chunk.index / a_.chunks_per_anchor) * layout_.tile_size();
  }
  // Returns the index of element `position` of line `line` of the tile in an array of states. Returns -1 for
  // padding.
  __device__ int64_t find_state_index(int line, int position) const {
    if (line >= valid_lines_ || position >= layout_.depth) return -1;
    const int64_t row = kHasColumns ? position : first_line_ + line,
                  column = kHasColumns ? first_line_ + line : position;
    return (int64_t{blockIdx.x} * a_.s.dim + row) * a_.s.value_dim + column;
  }

  // Loads the operands of the tokens of a chunk. Only loaders may call load().
  __device__ void load(const TokenChunk<T>& chunk) const {
    const auto get_key_target = [&](int array) { return get_target(chunk, array, kHasColumns); };
    load_rows(chunk, get_key_target(kQuery), a_.in.q);
    load_rows(chunk, get_key_target(kKey), a_.in.k);
    load_rows(chunk, get_key_target(kErase), a_.in.erase);
    if constexpr (kHasColumns) {
      load_rows(chunk, get_target(chunk, kValue, false), kIsReverse ? a_.g : a_.in.v);
    } else {
      load_rows(chunk, get_target(chunk, kGradient, true), a_.g);
      load_rows(chunk, get_target(chunk, kWritten, true), a_.u);
      load_rows(chunk, get_target(chunk, kWrittenGradient, true), a_.du);
      if (kIsReverse) load_rows(chunk, get_target(chunk, kTerms, false), a_.terms);
    }
    const Target decays = get_target(chunk, kDecay, has_decay_vectors());
    const auto exp = [](T x) { return DeviceMath::exp_nonpositive(x); };
    if (!a_.in.log_decay.data) return;
    if (a_.s.decay_dim > 1) return load_rows(chunk, decays, a_.in.log_decay, exp);
    for (int e = loader_; e < chunk.count * decays.width; e += loader_count_)
      decays.memory[e / decays.width * token_size() + e % decays.width] =
          exp(*a_.in.log_decay.row(example_, find_token(chunk, e / decays.width), head_));
  }

  // Stores the results of a chunk. Only loaders may call store().
  __device__ void store(const TokenChunk<T>& chunk) const {
    for_each_result([&](const auto& target, int array) {
      for_each_number(chunk, array, [&](int64_t token, int line, T value) {
        store_element(target.row(example_, token, head_) + first_line_ + line, value);
      });
    });
    if (kScan != GatedScan::key_gradient || !a_.gradients.glog_decay.data) return;
    if (a_.s.decay_dim > 1)
      return for_each_number(chunk, kRowResults + 1, [&](int64_t token, int line, T value) {
        find_decay_gradient(token)[line] = value;
      });
    // Each warp adds up the gradients of one token at a time.
    for (int i = loader_ / kWarpSize; i < chunk.count; i += loader_count_ / kWarpSize) {
      T sum = 0;
      for (int line = loader_ % kWarpSize; line < valid_lines_; line += kWarpSize)
        sum += find_numbers(chunk, kRowResults + 1, i)[line];
      sum = warp_reduce<Plus>(sum);
      if (loader_ % kWarpSize == 0) *find_decay_gradient(find_token(chunk, i)) = sum;
    }
  }
  // Stores zeros for the tokens after the valid tokens. All threads of the block must call store_padding().
  __device__ void store_padding() const {
    const int thread = static_cast<int>(threadIdx.x), count = static_cast<int>(blockDim.x);
    for (int64_t token = valid_length_; token < a_.s.length; ++token)
      for (int line = thread; line < valid_lines_; line += count) {
        for_each_result([&](const auto& target, int) {
          store_element(target.row(example_, token, head_) + first_line_ + line, T{0});
        });
        if (kScan == GatedScan::key_gradient && a_.gradients.glog_decay.data)
          find_decay_gradient(token)[a_.s.decay_dim > 1 ? line : 0] = 0;
      }
  }

 private:
  static constexpr int kVectors = kHasColumns ? kColumnVectors : kRowVectors,
                       kNumbers = kHasColumns ? kColumnNumbers : kRowNumbers;

  __device__ int vector_size() const { return layout_.template vector_size<Shape>(); }
  __device__ int numbers_size() const { return layout_.template numbers_size<Shape>(); }
  __device__ int token_size() const { return kVectors * vector_size() + kNumbers * numbers_size(); }
  __device__ T* chunk_memory() const {
    // If tiles are in registers, the compiler should know that chunks are in shared memory.
    if (Shape::kIsInRegisters || layout_.is_chunk_in_shared_memory) return get_dynamic_shared_memory<T>();
    return workspace() + layout_.tile_size();
  }
  // An array of a chunk, with `width` elements per token. The first `valid` elements receive the elements of
  // the rows of a tensor from element `first`. The other elements are set to 0.
  struct Target {
    T* memory;
    int width, first, valid;
  };
  __device__ Target get_target(const TokenChunk<T>& chunk, int array, bool is_vector) const {
    if (is_vector) return {find_vector(chunk, array, 0), vector_size(), 0, layout_.depth};
    return {find_numbers(chunk, array, 0), numbers_size(), first_line_, valid_lines_};
  }
  __device__ int64_t find_token(const TokenChunk<T>& chunk, int i) const {
    return a_.s.reverse ? valid_length_ - 1 - chunk.first - i : chunk.first + i;
  }

  // Writes convert(x) for the elements x of the rows of the tokens of a chunk. Does nothing if `rows` is
  // null.
  template <class X, class F>
  __device__ void load_rows(const TokenChunk<T>& chunk, const Target& target, const AttentionRows<X>& rows,
                            F&& convert) const {
    constexpr int kGroup = Pack<T>::kSize;
    if (!rows.data) return;
    const uint64_t strides =
        static_cast<uint64_t>(rows.batch_stride | rows.length_stride | rows.head_stride) * sizeof(X);
    const bool has_groups = (reinterpret_cast<uintptr_t>(rows.data) | strides) % (kGroup * sizeof(X)) == 0 &&
                            (target.width | target.first | target.valid) % kGroup == 0;
    if (has_groups)
      load_groups<kGroup>(chunk, target, rows, convert);
    else
      load_groups<1>(chunk, target, rows, convert);
  }
  template <class X>
  __device__ void load_rows(const TokenChunk<T>& chunk, const Target& target,
                            const AttentionRows<X>& rows) const {
    load_rows(chunk, target, rows, [](T x) { return x; });
  }
  // Loads V adjacent elements at a time. To hide the latency of memory, a thread loads kBatch groups before
  // it uses the first group.
  template <int V, class X, class F>
  __device__ void load_groups(const TokenChunk<T>& chunk, const Target& target, const AttentionRows<X>& rows,
                              F&& convert) const {
    constexpr int kBatch = sizeof(T) > sizeof(float) ? 1 : 4;
    const int groups = target.width / V, total = chunk.count * groups;
    for (int first = loader_; first < total; first += kBatch * loader_count_) {
      T values[kBatch][V] = {};
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int index = first + b * loader_count_, element = index % groups * V;
        if (index < total && element < target.valid)
          load_group<V>(rows.row(example_, find_token(chunk, index / groups), head_) + target.first + element,
                        values[b]);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int index = first + b * loader_count_;
        if (index >= total) break;
        for (T& value : values[b]) value = convert(value);
        store_group<V>(target.memory + index / groups * token_size() + index % groups * V, values[b]);
      }
    }
  }

  // Calls f(target, array) for each array of results that the scan writes to AttentionRows.
  template <class F>
  __device__ void for_each_result(F&& f) const {
    const auto call = [&](const auto& target, int array) {
      if (target.data) f(target, array);
    };
    if constexpr (kScan == GatedScan::result) {
      call(a_.out, kColumnResults);
      call(a_.written, kColumnResults + 1);
    } else if constexpr (kScan == GatedScan::value_gradient) {
      call(a_.gradients.gv, kColumnResults);
      call(a_.du, kColumnResults);
    } else if constexpr (kScan == GatedScan::query_gradient) {
      call(a_.gradients.gq, kRowResults);
      call(a_.gradients.gerase, kRowResults + 1);
      call(a_.terms, kTerms);
    } else {
      call(a_.gradients.gk, kRowResults);
    }
  }
  // Calls f(token, line, number) for each element of an array of numbers that is not padding.
  template <class F>
  __device__ void for_each_number(const TokenChunk<T>& chunk, int array, F&& f) const {
    for (int e = loader_; e < chunk.count * numbers_size(); e += loader_count_) {
      const int i = e / numbers_size(), line = e % numbers_size();
      if (line < valid_lines_) f(find_token(chunk, i), line, find_numbers(chunk, array, i)[line]);
    }
  }
  template <class X>
  __device__ static void store_element(X* target, T value) {
    *target = convert_element<X>(value);
  }
  // Returns the address of the gradients of g that the block computes for a token.
  __device__ T* find_decay_gradient(int64_t token) const {
    return a_.gradients.glog_decay.row(example_, token, head_) +
           (a_.s.decay_dim > 1 ? first_line_ : blockIdx.y * a_.glog_decay_stride);
  }

  const GatedScanArguments<S>& a_;
  const TileLayout& layout_;
  int64_t block_, example_, head_, valid_length_;
  int chunk_count_;
  int first_line_, valid_lines_;  // lines of the state that the block processes
  int loader_, loader_count_;     // index of this loader, negative if it is no loader, and number of loaders
};

}  // namespace tapeformer::cuda
