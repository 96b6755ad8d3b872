#include "ops/kernels/gated_linear_attention.h"

#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/state_tile.h"

// Gated linear attention, token by token. Each thread block processes the tokens of one head, and keeps a
// tile of a state (ops/cuda/state_tile.h). The block loads the operands of a chunk of tokens into shared
// memory before it processes the tokens of the chunk.
//
// S is the state, do is the gradient of `out`, E is the gradient of S, and Ŝ = Diag(exp(g)) S. There are four
// scans. The scans of E process the tokens in reverse order. Two scans have tiles of columns, because they
// compute sums over the rows of the state:
//   result           u = v - Ŝᵀp;  S = Ŝ + k uᵀ;  out = Sᵀq
//   value_gradient   E += q doᵀ;  du = dv = Eᵀk;  E -= p duᵀ;  E = Diag(exp(g)) E
// Two scans have tiles of rows. They use u and du, so that the rows are independent of each other:
//   query_gradient   dp = -Ŝ du;  S = Ŝ + k uᵀ;  dq = S do
//   key_gradient     E += q doᵀ;  dk = E u;  E -= p duᵀ;  E = Diag(exp(g)) E
//
// The gradient of g for token t is the sum of q * dq + p * dp - k * dk over token t and the tokens that are
// processed after t, up to some token a, plus the sum of the rows of S * E after token a. Long sums would
// cancel many digits. Therefore, query_gradient saves S at least every kMaxTokensPerAnchor tokens, and
// key_gradient begins a new sum at each saved state.
namespace tapeformer::cuda {
namespace {

constexpr int kMaxTokensPerAnchor = 96;

enum class GatedScan { result, value_gradient, query_gradient, key_gradient };

// The arrays of a chunk. For each token, a vector has one element for each element of a line of the tile, and
// an array of numbers has one element for each line. The arrays q, k, p and exp(g) are vectors for tiles of
// columns, and numbers for tiles of rows.
constexpr int kQuery = 0, kKey = 1, kErase = 2, kDecay = 3;
// For tiles of columns, v or do is an array of numbers, and so are the results: out and u, or du.
constexpr int kColumnVectors = 4, kValue = 0, kColumnResults = 1, kColumnNumbers = 3;
// For tiles of rows, do, u and du are vectors. The results are dq, dp and q * dq + p * dp (kTerms), or dk and
// the gradient of g. The scan key_gradient reads kTerms.
constexpr int kRowVectors = 3, kGradient = 0, kWritten = 1, kWrittenGradient = 2;
constexpr int kTerms = 4, kRowResults = 5, kRowNumbers = 7;

template <class S, class T = Compute<S>>
struct GatedScanArguments {
  GatedLinearAttentionShape s;
  GatedLinearAttentionInputs<S> in;
  AttentionRows<const S> g = {}, u = {};  // `g` is do
  const T* gfinal_state = nullptr;
  // Arrays that one scan writes and another scan reads: du (batch, length, heads, value_dim), and the sums
  // q * dq + p * dp (batch, length, heads, dim). Null if they are not needed.
  AttentionRows<T> du = {}, terms = {};
  // Tiles of S, with tile_size() elements for each anchor and each block.
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

// A thread block that processes a tile of a head. All threads of the block must call the functions.
template <class S, GatedScan kScan, int kElements, class T = Compute<S>>
class GatedScanBlock {
  static constexpr bool kHasColumns = kScan == GatedScan::result || kScan == GatedScan::value_gradient;
  static constexpr int kVectors = kHasColumns ? kColumnVectors : kRowVectors;
  using Numbers = T[kLinesPerGroup];

 public:
  static constexpr bool kIsReverse = kScan == GatedScan::value_gradient || kScan == GatedScan::key_gradient;

  __device__ explicit GatedScanBlock(const GatedScanArguments<S>& arguments)
      : a_(arguments),
        layout_(arguments.layout),
        block_(blockIdx.x * int64_t{gridDim.y} + blockIdx.y),
        example_(blockIdx.x / static_cast<unsigned>(arguments.s.heads)),
        head_(blockIdx.x % static_cast<unsigned>(arguments.s.heads)),
        valid_length_(get_valid_length(arguments.s.lengths, example_, arguments.s.length)),
        first_line_(static_cast<int>(blockIdx.y) * layout_.lines),
        valid_lines_(std::min(layout_.lines, layout_.line_count - first_line_)),
        group_(static_cast<int>(threadIdx.x) / layout_.lanes),
        tile_(layout_, arguments.workspace + block_ * layout_.workspace_size()) {
    chunk_count_ = (static_cast<int>(valid_length_) + layout_.tokens - 1) / layout_.tokens;
    vectors_ = layout_.is_chunk_in_shared_memory
                   ? get_dynamic_shared_memory<T>()
                   : arguments.workspace + (block_ + 1) * layout_.workspace_size() - layout_.chunk_size;
    const T* const state = kIsReverse ? a_.gfinal_state : a_.in.initial_state;
    tile_.for_each([&](int l, int position, T& element) {
      const int64_t index = find_state_index(l, position);
      element = state && index >= 0 ? state[index] : T{0};
    });
  }

  __device__ int chunk_count() const { return chunk_count_; }

  // Loads the operands of the tokens of a chunk. The block must synchronise before it processes them.
  __device__ void load(int chunk) {
    first_ = int64_t{chunk} * layout_.tokens;
    count_ = static_cast<int>(std::min(int64_t{layout_.tokens}, valid_length_ - first_));
    load_keys(kQuery, a_.in.q);
    load_keys(kKey, a_.in.k);
    load_keys(kErase, a_.in.erase);
    if (a_.in.log_decay.data)
      fill(key_array(kDecay), kHasColumns, [&](int64_t token, int i) {
        const T* const decays = a_.in.log_decay.row(example_, token, head_);
        return DeviceMath::exp_nonpositive(decays[a_.s.decay_dim == 1 ? 0 : i]);
      });
    if constexpr (kHasColumns) {
      load_numbers(kValue, kIsReverse ? a_.g : a_.in.v);
    } else {
      load_vectors(kGradient, a_.g);
      load_vectors(kWritten, a_.u);
      load_vectors(kWrittenGradient, a_.du);
      if (kIsReverse) load_numbers(kTerms, a_.terms);
    }
  }
  __device__ void process(int chunk) {
    T* const anchor = find_anchor(chunk);
    if (kScan == GatedScan::key_gradient && anchor) tile_.dot_saved(anchor, decay_sums_);
    for (int i = 0; i < count_; ++i) {
      if constexpr (kScan == GatedScan::result) compute_result(i);
      if constexpr (kScan == GatedScan::value_gradient) compute_value_gradient(count_ - 1 - i);
      if constexpr (kScan == GatedScan::query_gradient) compute_query_gradient(i);
      if constexpr (kScan == GatedScan::key_gradient) compute_key_gradient(count_ - 1 - i);
    }
    if (kScan == GatedScan::query_gradient && anchor) tile_.save(anchor);
  }
  // Stores the results of the chunk. The block must synchronise before.
  __device__ void store() const {
    for_each_result([&](const auto& target, int array) { store_results(target, array); });
    if (kScan == GatedScan::key_gradient) store_decay_gradients();
  }
  // Stores the state after the last token, and zeros for the tokens after the valid tokens.
  __device__ void finish() {
    for_each_result([&](const auto& target, int) { store_zeros(target); });
    if (kScan == GatedScan::key_gradient && a_.gradients.glog_decay.data)
      for (int64_t token = valid_length_; token < a_.s.length; ++token)
        for (int i = static_cast<int>(threadIdx.x); i < count_decays(); i += static_cast<int>(blockDim.x))
          decay_row(token)[i] = 0;
    T* const state = kScan == GatedScan::result           ? a_.final_state
                     : kScan == GatedScan::value_gradient ? a_.gradients.ginitial_state
                                                          : nullptr;
    if (!state) return;
    tile_.for_each([&](int l, int position, const T& element) {
      if (const int64_t index = find_state_index(l, position); index >= 0) state[index] = element;
    });
  }

 private:
  // The functions compute_… process token i of the chunk.
  __device__ void compute_result(int i) {
    if (a_.in.log_decay.data) tile_.multiply(vector(kDecay, i));
    Numbers written, result;
    read_numbers(kValue, i, written);
    if (a_.in.erase.data) {
      Numbers erased;
      tile_.dot(vector(kErase, i), erased);
      for (int l = 0; l < kLinesPerGroup; ++l) written[l] -= erased[l];
    }
    tile_.add(vector(kKey, i), written);
    tile_.dot(vector(kQuery, i), result);
    write_numbers(kColumnResults, i, result);
    write_numbers(kColumnResults + 1, i, written);
  }
  __device__ void compute_value_gradient(int i) {
    Numbers g, du;
    read_numbers(kValue, i, g);
    tile_.add(vector(kQuery, i), g);
    tile_.dot(vector(kKey, i), du);
    write_numbers(kColumnResults, i, du);
    if (a_.in.erase.data) {
      for (T& number : du) number = -number;
      tile_.add(vector(kErase, i), du);
    }
    if (a_.in.log_decay.data) tile_.multiply(vector(kDecay, i));
  }
  __device__ void compute_query_gradient(int i) {
    Numbers query, key, erase = {}, gquery, gerase = {}, terms;
    if (a_.in.log_decay.data) {
      Numbers decays;
      read_numbers(kDecay, i, decays);
      tile_.multiply_lines(decays);
    }
    if (a_.du.data) {
      read_numbers(kErase, i, erase);
      tile_.dot(vector(kWrittenGradient, i), gerase);
      for (T& number : gerase) number = -number;
    }
    read_numbers(kKey, i, key);
    tile_.add(vector(kWritten, i), key);
    read_numbers(kQuery, i, query);
    tile_.dot(vector(kGradient, i), gquery);
    for (int l = 0; l < kLinesPerGroup; ++l) terms[l] = query[l] * gquery[l] + erase[l] * gerase[l];
    write_numbers(kRowResults, i, gquery);
    write_numbers(kRowResults + 1, i, gerase);
    write_numbers(kTerms, i, terms);
  }
  __device__ void compute_key_gradient(int i) {
    Numbers query, key, gkey;
    read_numbers(kQuery, i, query);
    tile_.add(vector(kGradient, i), query);
    tile_.dot(vector(kWritten, i), gkey);
    write_numbers(kRowResults, i, gkey);
    if (a_.in.erase.data) {
      Numbers erase;
      read_numbers(kErase, i, erase);
      for (T& number : erase) number = -number;
      tile_.add(vector(kWrittenGradient, i), erase);
    }
    if (!a_.in.log_decay.data) return;
    Numbers decays;
    read_numbers(kDecay, i, decays);
    tile_.multiply_lines(decays);
    if (!a_.gradients.glog_decay.data) return;
    Numbers terms;
    read_numbers(kKey, i, key);
    read_numbers(kTerms, i, terms);
    // A token that clears the state has the gradient 0, and so has its sum.
    for (int l = 0; l < kLinesPerGroup; ++l)
      decay_sums_[l] = decays[l] == 0 ? T{0} : decay_sums_[l] + terms[l] - key[l] * gkey[l];
    write_numbers(kRowResults + 1, i, decay_sums_);
  }

  // Calls f(target, array) for each array of results that the scan writes to AttentionRows.
  template <class F>
  __device__ void for_each_result(F&& f) const {
    if constexpr (kScan == GatedScan::result) {
      f(a_.out, kColumnResults);
      f(a_.written, kColumnResults + 1);
    } else if constexpr (kScan == GatedScan::value_gradient) {
      f(a_.gradients.gv, kColumnResults);
      f(a_.du, kColumnResults);
    } else if constexpr (kScan == GatedScan::query_gradient) {
      f(a_.gradients.gq, kRowResults);
      f(a_.gradients.gerase, kRowResults + 1);
      f(a_.terms, kTerms);
    } else {
      f(a_.gradients.gk, kRowResults);
    }
  }

  // Writes an array of numbers of the chunk to `target`. Does nothing if `target` is null.
  template <class X>
  __device__ void store_results(const AttentionRows<X>& target, int array) const {
    if (!target.data) return;
    for (int e = static_cast<int>(threadIdx.x); e < count_ * layout_.lines;
         e += static_cast<int>(blockDim.x)) {
      const int i = e / layout_.lines, line = e % layout_.lines;
      if (line < valid_lines_)
        target.row(example_, find_token(first_ + i), head_)[first_line_ + line] =
            convert_element<X>(numbers(array, i)[line]);
    }
  }
  // Writes zeros for the tokens after the valid tokens.
  template <class X>
  __device__ void store_zeros(const AttentionRows<X>& target) const {
    if (!target.data) return;
    for (int64_t token = valid_length_; token < a_.s.length; ++token)
      for (int line = static_cast<int>(threadIdx.x); line < valid_lines_;
           line += static_cast<int>(blockDim.x))
        target.row(example_, token, head_)[first_line_ + line] = convert_element<X>(T{0});
  }
  // Writes the gradients of g. If decay_dim is 1, each warp adds up the gradients of one token at a time.
  __device__ void store_decay_gradients() const {
    if (!a_.gradients.glog_decay.data) return;
    if (a_.s.decay_dim > 1) {
      for (int e = static_cast<int>(threadIdx.x); e < count_ * layout_.lines;
           e += static_cast<int>(blockDim.x))
        if (const int line = e % layout_.lines; line < valid_lines_)
          decay_row(find_token(first_ + e / layout_.lines))[line] =
              numbers(kRowResults + 1, e / layout_.lines)[line];
      return;
    }
    const int thread = static_cast<int>(threadIdx.x), warps = static_cast<int>(blockDim.x) / kWarpSize;
    for (int i = thread / kWarpSize; i < count_; i += warps) {
      T sum = 0;
      for (int line = thread % kWarpSize; line < valid_lines_; line += kWarpSize)
        sum += numbers(kRowResults + 1, i)[line];
      sum = warp_reduce<Plus>(sum);
      if (thread % kWarpSize == 0) *decay_row(find_token(first_ + i)) = sum;
    }
  }
  __device__ int count_decays() const { return a_.s.decay_dim == 1 ? 1 : valid_lines_; }
  // Returns the address of the gradients of g that the block computes for a token.
  __device__ T* decay_row(int64_t token) const {
    return a_.gradients.glog_decay.row(example_, token, head_) +
           (a_.s.decay_dim == 1 ? blockIdx.y * a_.glog_decay_stride : first_line_);
  }

  // Returns the memory for S after a chunk, or null if S is not saved after this chunk.
  __device__ T* find_anchor(int chunk) const {
    const bool is_last = chunk + 1 == chunk_count_;
    if (!a_.anchors || ((chunk + 1) % a_.chunks_per_anchor != 0 && !is_last)) return nullptr;
    return a_.anchors + (block_ * a_.anchors_per_block + chunk / a_.chunks_per_anchor) * layout_.tile_size();
  }
  // Returns the token that is processed at `position`.
  __device__ int64_t find_token(int64_t position) const {
    return a_.s.reverse ? valid_length_ - 1 - position : position;
  }
  // Returns the index of an element of a line of the group in an array of states. Returns -1 for padding.
  __device__ int64_t find_state_index(int l, int position) const {
    const int line = group_ * kLinesPerGroup + l;
    if (line >= valid_lines_ || position >= layout_.depth) return -1;
    const int64_t row = kHasColumns ? position : first_line_ + line,
                  column = kHasColumns ? first_line_ + line : position;
    return (int64_t{blockIdx.x} * a_.s.dim + row) * a_.s.value_dim + column;
  }
  // Returns the address of an array of the chunk for token i of the chunk.
  __device__ T* vector(int array, int i) const {
    return vectors_ + (array * layout_.tokens + i) * layout_.width();
  }
  __device__ T* numbers(int array, int i) const {
    return vector(kVectors, 0) + (array * layout_.tokens + i) * layout_.lines;
  }
  __device__ void read_numbers(int array, int i, Numbers& values) const {
    load_group<kLinesPerGroup>(numbers(array, i) + group_ * kLinesPerGroup, values);
  }
  __device__ void write_numbers(int array, int i, const Numbers& values) const {
    if (static_cast<int>(threadIdx.x) % layout_.lanes == 0)
      store_group<kLinesPerGroup>(numbers(array, i) + group_ * kLinesPerGroup, values);
  }

  // Writes element(token, index) to an array of the chunk for each token and each index in the tile, where
  // `index` is a position in a line (for a vector) or the index of a line. Sets padding to 0.
  template <class F>
  __device__ void fill(T* target, bool is_vector, F&& element) const {
    const int width = is_vector ? layout_.width() : layout_.lines;
    const int first = is_vector ? 0 : first_line_, valid = is_vector ? layout_.depth : valid_lines_;
#pragma unroll 4
    for (int e = static_cast<int>(threadIdx.x); e < count_ * width; e += static_cast<int>(blockDim.x)) {
      const int i = e % width;
      target[e] = i < valid ? element(find_token(first_ + e / width), first + i) : T{0};
    }
  }
  template <class X>
  __device__ void load_rows(T* target, bool is_vector, const AttentionRows<X>& rows) const {
    if (rows.data)
      fill(target, is_vector,
           [&](int64_t token, int i) { return convert_element<T>(rows.row(example_, token, head_)[i]); });
  }
  template <class X>
  __device__ void load_vectors(int array, const AttentionRows<X>& rows) const {
    load_rows(vector(array, 0), true, rows);
  }
  template <class X>
  __device__ void load_numbers(int array, const AttentionRows<X>& rows) const {
    load_rows(numbers(array, 0), false, rows);
  }
  // Returns the array of q, k, p or exp(g).
  __device__ T* key_array(int array) const {
    return kHasColumns ? vector(array, 0) : numbers(array, 0);
  }
  template <class X>
  __device__ void load_keys(int array, const AttentionRows<X>& rows) const {
    load_rows(key_array(array), kHasColumns, rows);
  }

  const GatedScanArguments<S>& a_;
  const TileLayout& layout_;
  int64_t block_, example_, head_, valid_length_;
  int chunk_count_;
  int first_line_, valid_lines_;  // lines of the state that the block processes
  int group_;                     // index of the group of this thread
  StateTile<T, kElements> tile_;
  T* vectors_;               // memory of the chunk
  int64_t first_ = 0;        // position of the first token of the chunk in the order of processing
  int count_ = 0;            // number of tokens of the chunk
  Numbers decay_sums_ = {};  // gradients of g for the previous token
};

template <class S, GatedScan kScan, int kElements>
__global__ void __launch_bounds__(kMaxTileThreads) gated_scan_kernel(GatedScanArguments<S> arguments) {
  GatedScanBlock<S, kScan, kElements> block(arguments);
  const int chunks = block.chunk_count();
  for (int c = 0; c < chunks; ++c) {
    const int chunk = block.kIsReverse ? chunks - 1 - c : c;
    block.load(chunk);
    __syncthreads();
    block.process(chunk);
    __syncthreads();
    block.store();
  }
  block.finish();
}

// Adds up the gradients of g of all tiles. `sums` is an array (tiles, batch, length, heads).
template <class T>
__global__ void add_tiles_kernel(GatedLinearAttentionShape s, const T* sums, int tiles,
                                 AttentionRows<T> target) {
  const int64_t n = s.batch * s.length * s.heads;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    T sum = 0;
    for (int tile = 0; tile < tiles; ++tile) sum += sums[tile * n + i];
    *target.row(i / s.heads / s.length, i / s.heads % s.length, i % s.heads) = sum;
  }
}

template <class T>
TileLayout choose_column_layout(const GatedLinearAttentionShape& s) {
  return choose_tile_layout<T>(s.dim, s.value_dim, kColumnVectors, kColumnNumbers);
}
template <class T>
TileLayout choose_row_layout(const GatedLinearAttentionShape& s) {
  return choose_tile_layout<T>(s.value_dim, s.dim, kRowVectors, kRowNumbers);
}

template <GatedScan kScan, class S, class T = Compute<S>>
void launch_scan(GatedScanArguments<S> arguments, const TileLayout& layout) {
  const int64_t heads = arguments.s.batch * arguments.s.heads;
  const Scratch<T> workspace(heads * layout.tiles * layout.workspace_size());
  arguments.layout = layout;
  arguments.workspace = workspace.data();
  const auto launch_kernel = [&](auto elements) {
    const int64_t shared = layout.is_chunk_in_shared_memory ? layout.chunk_size * int64_t{sizeof(T)} : 0;
    launch(gated_scan_kernel<S, kScan, decltype(elements)::value>,
           make_tile_launch(heads, layout.tiles, layout.threads, static_cast<size_t>(shared)), arguments);
  };
  if constexpr (sizeof(T) == sizeof(float)) {
    if (layout.is_in_registers && layout.elements == 8)
      return launch_kernel(std::integral_constant<int, 8>{});
    if (layout.is_in_registers) return launch_kernel(std::integral_constant<int, 16>{});
  }
  launch_kernel(std::integral_constant<int, 0>{});
}

// Computes the gradients of q, p, k and g from arguments.du.
template <class S, class T = Compute<S>>
void launch_row_scans(GatedScanArguments<S> arguments) {
  GatedLinearAttentionGradients<S>& gradients = arguments.gradients;
  const GatedLinearAttentionShape& s = arguments.s;
  const TileLayout layout = choose_row_layout<T>(s);
  const AttentionRows<T> glog_decay = gradients.glog_decay;
  const bool needs_decays = glog_decay.data != nullptr;
  const int64_t tokens = needs_decays ? s.batch * s.length * s.heads : 0;
  arguments.chunks_per_anchor = std::max(kMaxTokensPerAnchor / layout.tokens, 1);
  const int64_t tokens_per_anchor = arguments.chunks_per_anchor * layout.tokens;
  arguments.anchors_per_block = (s.length + tokens_per_anchor - 1) / tokens_per_anchor;
  const Scratch<T> terms(tokens * s.dim);
  const Scratch<T> anchors(
      needs_decays ? s.batch * s.heads * layout.tiles * arguments.anchors_per_block * layout.tile_size() : 0);
  arguments.terms = make_contiguous_rows(terms.data(), s.length, s.heads, s.dim);
  arguments.anchors = anchors.data();
  const bool needs_sum = needs_decays && s.decay_dim == 1 && layout.tiles > 1;
  const Scratch<T> decay_sums(needs_sum ? layout.tiles * tokens : 0);
  if (needs_sum) {
    gradients.glog_decay = make_contiguous_rows(decay_sums.data(), s.length, s.heads, 1);
    arguments.glog_decay_stride = tokens;
  }
  if (gradients.gq.data || gradients.gerase.data || needs_decays)
    launch_scan<GatedScan::query_gradient>(arguments, layout);
  if (gradients.gk.data || needs_decays) launch_scan<GatedScan::key_gradient>(arguments, layout);
  if (needs_sum)
    launch(add_tiles_kernel<T>, make_elementwise_launch(tokens), s, decay_sums.data(), layout.tiles,
           glog_decay);
}

}  // namespace

template <class S>
void gated_linear_attention_forward(Backend, const GatedLinearAttentionShape& s,
                                    const GatedLinearAttentionInputs<S>& inputs, S* out, S* written,
                                    Compute<S>* final_state) {
  GatedScanArguments<S> arguments{.s = s, .in = inputs};
  arguments.out = make_contiguous_rows(out, s.length, s.heads, s.value_dim);
  arguments.written = make_contiguous_rows(written, s.length, s.heads, s.value_dim);
  arguments.final_state = final_state;
  launch_scan<GatedScan::result>(arguments, choose_column_layout<Compute<S>>(s));
}

template <class S>
void gated_linear_attention_backward(Backend, const GatedLinearAttentionShape& s,
                                     const GatedLinearAttentionInputs<S>& inputs, const S* written,
                                     AttentionRows<const S> g, const Compute<S>* gfinal_state,
                                     const GatedLinearAttentionGradients<S>& gradients) {
  using T = Compute<S>;
  GatedScanArguments<S> arguments{.s = s, .in = inputs, .g = g};
  arguments.u = written ? make_contiguous_rows(written, s.length, s.heads, s.value_dim) : inputs.v;
  arguments.gfinal_state = gfinal_state;
  arguments.gradients = gradients;
  const bool needs_du =
      inputs.erase.data && (gradients.gk.data || gradients.gerase.data || gradients.glog_decay.data);
  const Scratch<T> du(needs_du ? s.batch * s.length * s.heads * s.value_dim : 0);
  arguments.du = make_contiguous_rows(du.data(), s.length, s.heads, s.value_dim);
  if (needs_du || gradients.gv.data || gradients.ginitial_state)
    launch_scan<GatedScan::value_gradient>(arguments, choose_column_layout<T>(s));
  launch_row_scans(arguments);
}

template <class T>
struct GatedLinearAttentionKernels {
  inline static const FunctionInstances all{&gated_linear_attention_forward<T>,
                                            &gated_linear_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct GatedLinearAttentionKernels<float>;
                 template struct GatedLinearAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct GatedLinearAttentionKernels<double>;)

}  // namespace tapeformer::cuda
