#include "ops/kernels/gated_linear_attention.h"

#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/gated_beta.h"
#include "ops/cuda/gated_scan.h"

// Gated linear attention, token by token. Each thread block processes the tokens of one head, and keeps a
// tile of a state (ops/cuda/state_tile.h). While half of the threads process the tokens of a chunk, the other
// threads load the operands of the next chunk and store the results of the last chunk
// (ops/cuda/gated_scan.h).
//
// The gradient of g for token t is the sum of q * dq + p * dp - k * dk over token t and the tokens that are
// processed after t, up to some token a, plus the sum of the rows of S * E after token a. Long sums would
// cancel many digits. Therefore, query_gradient saves S at least every kMaxTokensPerAnchor tokens, and
// key_gradient begins a new sum at each saved state.
namespace tapeformer::cuda {
namespace {

constexpr int kMaxTokensPerAnchor = 96;

// The threads that hold the tile of a block. All threads of a warp must call the functions together.
template <class S, GatedScan kScan, class Shape, class T = Compute<S>>
class GatedScanTile {
  using Block = GatedScanBlock<S, kScan, Shape>;
  using Numbers = T[kLinesPerGroup];

 public:
  __device__ GatedScanTile(const GatedScanArguments<S>& arguments, const Block& block)
      : a_(arguments),
        block_(block),
        tile_(arguments.layout, block.workspace()),
        first_line_(static_cast<int>(threadIdx.x) / tile_.lanes() * kLinesPerGroup) {}

  __device__ void load_state() {
    const T* const state = Block::kIsReverse ? a_.gfinal_state : a_.in.initial_state;
    tile_.for_each([&](int l, int position, T& element) {
      const int64_t index = block_.find_state_index(first_line_ + l, position);
      element = state && index >= 0 ? state[index] : T{0};
    });
  }
  __device__ void store_state() {
    T* const state = kScan == GatedScan::result           ? a_.final_state
                     : kScan == GatedScan::value_gradient ? a_.gradients.ginitial_state
                                                          : nullptr;
    if (!state) return;
    tile_.for_each([&](int l, int position, const T& element) {
      if (const int64_t index = block_.find_state_index(first_line_ + l, position); index >= 0)
        state[index] = element;
    });
  }
  __device__ void process(const TokenChunk<T>& chunk) {
    T* const anchor = block_.find_anchor(chunk);
    if (kScan == GatedScan::key_gradient && anchor) tile_.dot_saved(anchor, decay_sums_);
    for (int i = 0; i < chunk.count; ++i) {
      if constexpr (kScan == GatedScan::result) compute_result(chunk, i);
      if constexpr (kScan == GatedScan::value_gradient) compute_value_gradient(chunk, chunk.count - 1 - i);
      if constexpr (kScan == GatedScan::query_gradient) compute_query_gradient(chunk, i);
      if constexpr (kScan == GatedScan::key_gradient) compute_key_gradient(chunk, chunk.count - 1 - i);
    }
    if (kScan == GatedScan::query_gradient && anchor) tile_.save(anchor);
  }

 private:
  // The functions compute_… process token i of a chunk.
  __device__ void compute_result(const TokenChunk<T>& chunk, int i) {
    if (a_.in.log_decay.data) multiply_by_decays(chunk, i);
    Numbers written, result;
    read_numbers(chunk, kValue, i, written);
    if (a_.in.erase.data) {
      Numbers erased;
      tile_.dot(block_.find_vector(chunk, kErase, i), erased);
      for (int l = 0; l < kLinesPerGroup; ++l) written[l] -= erased[l];
    }
    tile_.add(block_.find_vector(chunk, kKey, i), written);
    tile_.dot(block_.find_vector(chunk, kQuery, i), result);
    write_numbers(chunk, kColumnResults, i, result);
    write_numbers(chunk, kColumnResults + 1, i, written);
  }
  __device__ void compute_value_gradient(const TokenChunk<T>& chunk, int i) {
    Numbers g, du;
    read_numbers(chunk, kValue, i, g);
    tile_.add(block_.find_vector(chunk, kQuery, i), g);
    tile_.dot(block_.find_vector(chunk, kKey, i), du);
    write_numbers(chunk, kColumnResults, i, du);
    if (a_.in.erase.data) {
      for (T& number : du) number = -number;
      tile_.add(block_.find_vector(chunk, kErase, i), du);
    }
    if (a_.in.log_decay.data) multiply_by_decays(chunk, i);
  }
  __device__ void compute_query_gradient(const TokenChunk<T>& chunk, int i) {
    Numbers query, key, erase = {}, gquery, gerase = {}, terms;
    if (a_.in.log_decay.data) multiply_by_decays(chunk, i);
    if (a_.du.data) {
      read_numbers(chunk, kErase, i, erase);
      tile_.dot(block_.find_vector(chunk, kWrittenGradient, i), gerase);
      for (T& number : gerase) number = -number;
    }
    read_numbers(chunk, kKey, i, key);
    tile_.add(block_.find_vector(chunk, kWritten, i), key);
    read_numbers(chunk, kQuery, i, query);
    tile_.dot(block_.find_vector(chunk, kGradient, i), gquery);
    for (int l = 0; l < kLinesPerGroup; ++l) terms[l] = query[l] * gquery[l] + erase[l] * gerase[l];
    write_numbers(chunk, kRowResults, i, gquery);
    write_numbers(chunk, kRowResults + 1, i, gerase);
    write_numbers(chunk, kTerms, i, terms);
  }
  __device__ void compute_key_gradient(const TokenChunk<T>& chunk, int i) {
    Numbers query, key, gkey;
    read_numbers(chunk, kQuery, i, query);
    tile_.add(block_.find_vector(chunk, kGradient, i), query);
    tile_.dot(block_.find_vector(chunk, kWritten, i), gkey);
    write_numbers(chunk, kRowResults, i, gkey);
    if (a_.in.erase.data) {
      Numbers erase;
      read_numbers(chunk, kErase, i, erase);
      for (T& number : erase) number = -number;
      tile_.add(block_.find_vector(chunk, kWrittenGradient, i), erase);
    }
    if (!a_.in.log_decay.data) return;
    Numbers decays;
    read_numbers(chunk, kDecay, i, decays);
    tile_.multiply_lines(decays);
    if (!a_.gradients.glog_decay.data) return;
    Numbers terms;
    read_numbers(chunk, kKey, i, key);
    read_numbers(chunk, kTerms, i, terms);
    // A token that clears the state has the gradient 0, and so has its sum.
    for (int l = 0; l < kLinesPerGroup; ++l)
      decay_sums_[l] = decays[l] == 0 ? T{0} : decay_sums_[l] + terms[l] - key[l] * gkey[l];
    write_numbers(chunk, kRowResults + 1, i, decay_sums_);
  }

  __device__ void multiply_by_decays(const TokenChunk<T>& chunk, int i) {
    if (block_.has_decay_vectors()) return tile_.multiply(block_.find_vector(chunk, kDecay, i));
    Numbers decays;
    read_numbers(chunk, kDecay, i, decays);
    tile_.multiply_lines(decays);
  }
  __device__ void read_numbers(const TokenChunk<T>& chunk, int array, int i, Numbers& values) const {
    load_group<kLinesPerGroup>(block_.find_numbers(chunk, array, i) + first_line_, values);
  }
  __device__ void write_numbers(const TokenChunk<T>& chunk, int array, int i, const Numbers& values) const {
    if (tile_.lane() == 0)
      store_group<kLinesPerGroup>(block_.find_numbers(chunk, array, i) + first_line_, values);
  }

  const GatedScanArguments<S>& a_;
  const Block& block_;
  StateTile<T, Shape> tile_;
  int first_line_;           // first line of the group
  Numbers decay_sums_ = {};  // gradients of g for the previous token
};

template <class S, GatedScan kScan, class Shape>
__global__ void __launch_bounds__(2 * kMaxTileThreads) gated_scan_kernel(GatedScanArguments<S> arguments) {
  const GatedScanBlock<S, kScan, Shape> block(arguments);
  GatedScanTile<S, kScan, Shape> tile(arguments, block);
  const int chunks = block.chunk_count();
  if (!block.is_loader()) tile.load_state();
  for (int c = -1; c <= chunks; ++c) {
    if (!block.is_loader()) {
      if (c >= 0 && c < chunks) tile.process(block.find_chunk(c));
    } else {
      if (c > 0) block.store(block.find_chunk(c - 1));
      if (c + 1 < chunks) block.load(block.find_chunk(c + 1));
    }
    __syncthreads();
  }
  if (!block.is_loader()) tile.store_state();
  block.store_padding();
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
  visit_line_shape<T>(layout.depth, [&]<class Shape>(Shape) {
    const Scratch<T> workspace(Shape::kIsInRegisters ? 0 : heads * layout.tiles * layout.workspace_size());
    const int64_t shared_size = layout.is_chunk_in_shared_memory ? 2 * layout.chunk_size : 0;
    arguments.layout = layout;
    arguments.workspace = workspace.data();
    launch(gated_scan_kernel<S, kScan, Shape>,
           make_tile_launch(heads, layout.tiles, 2 * layout.threads,
                            static_cast<size_t>(shared_size) * sizeof(T)),
           arguments);
  });
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
  const ScaledInputs<S> scaled(s, inputs);
  GatedScanArguments<S> arguments{.s = s, .in = scaled.inputs()};
  arguments.out = make_contiguous_rows(out, s.length, s.heads, s.value_dim);
  arguments.written = make_contiguous_rows(written, s.length, s.heads, s.value_dim);
  arguments.final_state = final_state;
  launch_scan<GatedScan::result>(arguments, choose_column_layout<Compute<S>>(s));
}

template <class S>
void gated_linear_attention_backward(Backend, const GatedLinearAttentionShape& s,
                                     const GatedLinearAttentionInputs<S>& inputs, const S* written,
                                     AttentionRows<const S> g, const Compute<S>* gfinal_state,
                                     const GatedLinearAttentionGradients<S>& wanted) {
  using T = Compute<S>;
  const ScaledInputs<S> scaled(s, inputs);
  const int64_t rows = s.batch * s.length * s.heads;
  GatedLinearAttentionGradients<S> gradients = wanted;
  // The gradient of β needs the gradient of the erase keys.
  const Scratch<S> gerase(wanted.gbeta.data && inputs.erase.data && !wanted.gerase.data ? rows * s.dim : 0);
  if (gerase.data()) gradients.gerase = make_contiguous_rows(gerase.data(), s.length, s.heads, s.dim);
  GatedScanArguments<S> arguments{.s = s, .in = scaled.inputs(), .g = g};
  arguments.u = written ? make_contiguous_rows(written, s.length, s.heads, s.value_dim) : arguments.in.v;
  arguments.gfinal_state = gfinal_state;
  arguments.gradients = gradients;
  const bool needs_du =
      inputs.erase.data && (gradients.gk.data || gradients.gerase.data || gradients.glog_decay.data);
  const Scratch<T> du(needs_du ? rows * s.value_dim : 0);
  arguments.du = make_contiguous_rows(du.data(), s.length, s.heads, s.value_dim);
  if (needs_du || gradients.gv.data || gradients.ginitial_state)
    launch_scan<GatedScan::value_gradient>(arguments, choose_column_layout<T>(s));
  launch_row_scans(arguments);
  if (inputs.beta.data) launch(finish_beta_kernel<S>, make_warp_row_launch(rows), s, inputs, gradients);
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
