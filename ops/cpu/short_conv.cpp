#include "ops/kernels/short_conv.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // minimum number of elements per thread
// The backward pass processes blocks of tokens and channels, so that the rows of a block remain in the L1
// cache. Partial gradients of the weight are sums over fixed numbers of blocks, and are added in a fixed
// order, so results do not depend on the number of threads.
constexpr int64_t kBlockTokens = 64, kBlockChannels = 256, kMaxPartialGradients = 64;
// Adjacent tokens are processed together, because they share taps and most of the rows that they read.
constexpr int kTile = 4;
constexpr int kUsualTaps = 4;

int64_t choose_grain(int64_t elements) {
  return std::max<int64_t>(kGrain / std::max<int64_t>(elements, 1), 1);
}

// The rows that adjacent tokens read: the taps [begin, end) of token i read row j + i for tap j. If all taps
// of a tile of tokens have rows, the tokens are processed together.
template <class T>
struct TapRows {
  const T* rows[kMaxShortConvKernel + kTile - 1];
  int64_t begin = 0, end = 0;
  bool is_tile = false;
};

// Finds the rows of the first token, or of a tile of tokens if `count` tokens are a tile and have all of
// their taps. find_range(i) returns the positions that token i reads, `first` is the position that tap 0 of
// the first token reads, and find_row(position) returns the address of a row.
template <class T, class Range, class Row>
TapRows<T> find_tap_rows(int64_t kernel, int64_t first, int64_t count, Range&& find_range, Row&& find_row) {
  const auto is_complete = [&](int64_t i) {
    const TokenRange range = find_range(i);
    return range.begin == first + i && range.end == first + i + kernel;
  };
  TapRows<T> taps;
  taps.is_tile = count >= kTile;
  for (int64_t i = 0; taps.is_tile && i < kTile; ++i) taps.is_tile = is_complete(i);
  if (taps.is_tile) {
    taps.end = kernel;
  } else if (const TokenRange range = find_range(0); range.begin < range.end) {
    taps.begin = range.begin - first, taps.end = range.end - first;
  }
  const int64_t last = taps.is_tile ? kernel + kTile - 1 : taps.end;
  for (int64_t j = taps.begin; j < last; ++j) taps.rows[j] = find_row(first + j);
  return taps;
}

template <class T>
TapRows<T> find_input_rows(const ShortConvInputs<T>& in, int64_t example, int64_t token, int64_t count) {
  return find_tap_rows<T>(
      in.kernel, token - in.count_earlier(), count,
      [&](int64_t i) { return in.find_inputs(example, token + i); },
      [&](int64_t position) { return in.row(example, position); });
}

// Calls f(taps, tokens) with the number of taps and of tokens as constants. The number of taps is 0 if it is
// not the usual number.
template <class T, class F>
void dispatch_taps(const TapRows<T>& taps, F&& f) {
  constexpr std::integral_constant<int, 0> any;
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, kTile> tile;
  constexpr std::integral_constant<int, kUsualTaps> usual;
  const bool is_usual = taps.begin == 0 && taps.end == kUsualTaps;
  if (taps.is_tile) return is_usual ? f(usual, tile) : f(any, tile);
  is_usual ? f(usual, one) : f(any, one);
}

// Calls f(j, rows) for each tap j, where rows[i] has `count` elements of the row of token i.
template <int kTaps, int kTokens, class T, class F>
[[gnu::always_inline]] inline void visit_taps(const TapRows<T>& taps, int64_t channel, int64_t count, F&& f) {
  Vector<Compute<T>> rows[kTokens];
  const int64_t begin = kTaps ? 0 : taps.begin, end = kTaps ? kTaps : taps.end;
#pragma GCC unroll 4
  for (int i = 1; i < kTokens; ++i) rows[i] = load_first(taps.rows[begin + i - 1] + channel, count);
#pragma GCC unroll 4
  for (int64_t j = begin; j < end; ++j) {
#pragma GCC unroll 4
    for (int i = 1; i < kTokens; ++i) rows[i - 1] = rows[i];
    rows[kTokens - 1] = load_first(taps.rows[j + kTokens - 1] + channel, count);
    f(j, rows);
  }
}

// Computes sums[i] = Σ_j weight[j] rows[j + i] for the channels of a vector. The taps have the distance
// `stride`.
template <int kTaps, int kTokens, class T>
[[gnu::always_inline]] inline void add_taps(const TapRows<T>& taps, const Compute<T>* weight, int64_t stride,
                                            int64_t channel, int64_t count, Vector<Compute<T>>* sums) {
  using V = Vector<Compute<T>>;
  for (int i = 0; i < kTokens; ++i) sums[i] = V{};
  visit_taps<kTaps, kTokens>(
      taps, channel, count, [&](int64_t j, const V* rows) __attribute__((always_inline)) {
        const V tap = load(weight + j * stride + channel);
#pragma GCC unroll 4
        for (int i = 0; i < kTokens; ++i) sums[i] += tap * rows[i];
      });
}

// Copies the weight (channels, kernel) to `transposed` (kernel, width), with zeros in channels that do not
// exist.
template <class C>
void transpose_weight(const C* weight, int64_t channels, int64_t kernel, int64_t width, C* transposed) {
  std::fill_n(transposed, kernel * width, C{0});
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < kernel; ++j) transposed[j * width + c] = weight[c * kernel + j];
}

// Computes the results of a token or of a tile of tokens.
template <int kTaps, int kTokens, class T>
void compute_results(const ShortConvInputs<T>& in, const TapRows<T>& taps, const Compute<T>* weight,
                     int64_t width, T* y) {
  visit_vectors<Compute<T>>(
      0, in.channels, [&](int64_t c, int64_t count) __attribute__((always_inline)) {
        Vector<Compute<T>> sums[kTokens];
        add_taps<kTaps, kTokens>(taps, weight, width, c, count, sums);
#pragma GCC unroll 4
        for (int i = 0; i < kTokens; ++i)
          store_first(y + i * in.channels + c, compute_gate<VectorMath>(in.activation, sums[i]), count);
      });
}

// The backward pass for blocks of tokens and channels. One object is used by one thread.
template <class T>
class BackwardBlocks {
 public:
  using C = Compute<T>;

  // `weight` is (kernel, width).
  BackwardBlocks(const ShortConvInputs<T>& in, const C* weight, int64_t width, AttentionRows<const T> g,
                 T* gx, T* ghistory)
      : in_(in),
        weight_(weight),
        width_(width),
        g_(g),
        gx_(gx),
        ghistory_(ghistory),
        recent_((in.kernel + kTile - 1) * width) {}

  // Computes the gradients of the inputs at the positions [begin, end) of an example, and adds the gradient
  // of the weight from the results of these tokens to gweight (kernel, width), which can be null.
  void run(int64_t example, int64_t begin, int64_t end, int64_t first_channel, int64_t end_channel,
           C* gweight) {
    const bool needs_inputs = gx_ || ghistory_;
    const int64_t valid = in_.get_valid_tokens(example), earlier = in_.count_earlier();
    const int64_t last = needs_inputs ? end + earlier : end;
    begin_ = first_channel, end_ = end_channel;
    for (int64_t t = needs_inputs ? begin - in_.lookahead : begin, count; t < last; t += count) {
      count = std::min<int64_t>(kTile, last - t);
      for (int64_t i = std::max(t, int64_t{0}), tokens; i < std::min(t + count, valid); i += tokens) {
        const bool is_own = i >= begin && i < end;
        const int64_t limit = std::min({t + count, valid, is_own ? end : i < begin ? begin : last});
        tokens = compute_sum_gradients(example, i, limit - i, is_own ? gweight : nullptr);
      }
      if (!needs_inputs) continue;
      for (int64_t p = std::max(t - earlier, begin), positions; p < t - earlier + count; p += positions)
        positions = compute_input_gradients(example, p, t - earlier + count - p);
    }
  }

 private:
  // Returns the gradient of the sum of a token, for the latest tokens.
  C* get_recent(int64_t token) const { return recent_.data() + (token % (in_.kernel + kTile - 1)) * width_; }

  // Computes the gradients of the arguments of the activation for one token or for a tile, and returns the
  // number of tokens. `count` tokens follow.
  int64_t compute_sum_gradients(int64_t example, int64_t token, int64_t count, C* gweight) const {
    const TapRows<T> taps = find_input_rows(in_, example, token, count);
    dispatch_taps(taps, [&]<int kTaps, int kTokens>(std::integral_constant<int, kTaps>,
                                                    std::integral_constant<int, kTokens>) {
      visit_vectors<C>(
          begin_, end_, [&](int64_t c, int64_t vector_count) __attribute__((always_inline)) {
            Vector<C> v[kTokens];
            compute_sum_gradient<kTaps, kTokens>(taps, example, token, c, vector_count, v);
            if (!gweight) return;
            visit_taps<kTaps, kTokens>(
                taps, c, vector_count, [&](int64_t j, const Vector<C>* rows) __attribute__((always_inline)) {
                  Vector<C> sum = load(gweight + j * width_ + c);
#pragma GCC unroll 4
                  for (int i = 0; i < kTokens; ++i) sum += v[i] * rows[i];
                  store(gweight + j * width_ + c, sum);
                });
          });
    });
    return taps.is_tile ? kTile : 1;
  }

  template <int kTaps, int kTokens>
  [[gnu::always_inline]] void compute_sum_gradient(const TapRows<T>& taps, int64_t example, int64_t token,
                                                   int64_t c, int64_t count, Vector<C>* v) const {
    for (int i = 0; i < kTokens; ++i) v[i] = load_first(g_.row(example, token + i, 0) + c, count);
    if (in_.activation != GateActivation::none) {
      Vector<C> sums[kTokens];
      add_taps<kTaps, kTokens>(taps, weight_, width_, c, count, sums);
#pragma GCC unroll 4
      for (int i = 0; i < kTokens; ++i)
        v[i] *= compute_gate_and_derivative<VectorMath>(in_.activation, sums[i]).derivative;
    }
    for (int i = 0; i < kTokens; ++i) store(get_recent(token + i) + c, v[i]);
  }

  // Computes the gradients of the inputs at one position or at a tile of positions, and returns the number of
  // positions. `count` positions follow.
  int64_t compute_input_gradients(int64_t example, int64_t position, int64_t count) const {
    if (position < 0 ? !ghistory_ : !gx_) return 1;
    T* const target = position < 0 ? ghistory_ + ((example + 1) * (in_.kernel - 1) + position) * in_.channels
                                   : gx_ + (example * in_.length + position) * in_.channels;
    // The tokens that read a position do so with their taps in reverse order.
    const TapRows<C> taps = find_tap_rows<C>(
        in_.kernel, position - in_.lookahead, position < 0 ? 1 : count,
        [&](int64_t i) { return in_.find_readers(example, position + i); },
        [&](int64_t token) { return get_recent(token); });
    const C* const last_tap = weight_ + (in_.kernel - 1) * width_;
    dispatch_taps(taps, [&]<int kTaps, int kTokens>(std::integral_constant<int, kTaps>,
                                                    std::integral_constant<int, kTokens>) {
      visit_vectors<C>(
          begin_, end_, [&](int64_t c, int64_t vector_count) __attribute__((always_inline)) {
            Vector<C> sums[kTokens];
            add_taps<kTaps, kTokens>(taps, last_tap, -width_, c, kLanes<C>, sums);
#pragma GCC unroll 4
            for (int i = 0; i < kTokens; ++i)
              store_first(target + i * in_.channels + c, sums[i], vector_count);
          });
    });
    return taps.is_tile ? kTile : 1;
  }

  const ShortConvInputs<T>& in_;
  const C* weight_;
  int64_t width_;
  AttentionRows<const T> g_;
  T *gx_, *ghistory_;
  Scratch<C> recent_;
  int64_t begin_ = 0, end_ = 0;  // the channels of the block
};

}  // namespace

template <class T>
void short_conv_forward(Backend, const ShortConvInputs<T>& in, T* y) {
  const int64_t width = round_up_to_vector<T>(in.channels);
  const Scratch<Compute<T>> weight(in.kernel * width);
  transpose_weight(in.weight, in.channels, in.kernel, width, weight.data());
  // Tiles begin at multiples of their size and not where the range of a thread begins: compilers may round
  // the sums of a tile and of a single token differently.
  const int64_t tiles = (in.length + kTile - 1) / kTile;
  parallel_for(in.batch * tiles, choose_grain(kTile * in.channels), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t example = tile / tiles, first = tile % tiles * kTile;
      const int64_t last = std::min(first + kTile, in.length);
      const int64_t valid = std::min(in.get_valid_tokens(example), last);
      const auto get_out = [&](int64_t token) { return y + (example * in.length + token) * in.channels; };
      int64_t token = first;
      while (token < valid) {
        const TapRows<T> taps = find_input_rows(in, example, token, valid - token);
        dispatch_taps(taps, [&]<int kTaps, int kTokens>(std::integral_constant<int, kTaps>,
                                                        std::integral_constant<int, kTokens>) {
          compute_results<kTaps, kTokens>(in, taps, weight.data(), width, get_out(token));
          token += kTokens;
        });
      }
      std::fill(get_out(token), get_out(last), T{});
    }
  });
}

template <class T>
void short_conv_backward(Backend, const ShortConvInputs<T>& in, AttentionRows<const T> g, T* gx,
                         Compute<T>* gweight, T* ghistory) {
  using C = Compute<T>;
  const int64_t width = round_up_to_vector<T>(in.channels), kernel = in.kernel;
  const int64_t example_blocks = std::max<int64_t>((in.length + kBlockTokens - 1) / kBlockTokens, 1);
  const int64_t blocks = in.batch * example_blocks, parts = std::min(blocks, kMaxPartialGradients);
  const int64_t strips = (in.channels + kBlockChannels - 1) / kBlockChannels;
  const Scratch<C> weight(kernel * width), partial(gweight ? parts * kernel * width : 0);
  transpose_weight(in.weight, in.channels, kernel, width, weight.data());
  if (gweight) std::fill_n(partial.data(), parts * kernel * width, C{0});
  const int64_t part_elements = in.batch * in.length * in.channels / std::max<int64_t>(parts * strips, 1);
  parallel_for(parts * strips, choose_grain(part_elements), [&](int64_t task_begin, int64_t task_end) {
    BackwardBlocks<T> backward(in, weight.data(), width, g, gx, ghistory);
    for (int64_t task = task_begin; task < task_end; ++task) {
      const int64_t part = task / strips, channel = task % strips * kBlockChannels;
      for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; ++block) {
        const int64_t token = block % example_blocks * kBlockTokens;
        backward.run(block / example_blocks, token == 0 && ghistory ? 1 - kernel : token,
                     std::min(token + kBlockTokens, in.length), channel,
                     std::min(channel + kBlockChannels, in.channels),
                     gweight ? partial.data() + part * kernel * width : nullptr);
      }
    }
  });
  if (!gweight) return;
  for (int64_t j = 0; j < kernel; ++j)
    for (int64_t c = 0; c < in.channels; ++c) {
      C sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += partial.data()[(part * kernel + j) * width + c];
      gweight[c * kernel + j] = sum;
    }
}

template <class T>
void short_conv_step(Backend, const ShortConvShape& s, AttentionRows<const T> x, const T* weight, T* history,
                     AttentionRows<T> out) {
  const int64_t vectors = (s.channels + kLanes<T> - 1) / kLanes<T>, rows = s.kernel - 1;
  parallel_for(vectors, choose_grain(s.batch * kLanes<T>), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * kLanes<T>; c < std::min(end * kLanes<T>, s.channels); c += kLanes<T>) {
      const int64_t count = std::min(s.channels - c, kLanes<T>);
      Vector<T> taps[kMaxShortConvKernel] = {};
      for (int64_t j = 0; j < s.kernel; ++j)
        for (int64_t lane = 0; lane < count; ++lane) taps[j][lane] = weight[(c + lane) * s.kernel + j];
      for (int64_t b = 0; b < s.batch; ++b) {
        const auto past = [&](int64_t j) { return history + (b * rows + j) * s.channels + c; };
        const Vector<T> current = load_first(x.row(b, 0, 0) + c, count);
        Vector<T> sum{};
        for (int64_t j = 0; j < rows; ++j) {
          sum += taps[j] * load_first(past(j), count);
          store_first(past(j), j + 1 < rows ? load_first(past(j + 1), count) : current, count);
        }
        sum += taps[rows] * current;
        store_first(out.row(b, 0, 0) + c, compute_gate<VectorMath>(s.activation, sum), count);
      }
    }
  });
}

template <class T>
struct ShortConvKernels {
  inline static const FunctionInstances all{&short_conv_forward<T>, &short_conv_backward<T>};
};
template struct ShortConvKernels<float>;
template struct ShortConvKernels<double>;
template struct ShortConvKernels<BFloat16>;
template <class T>
struct ShortConvStepKernels {
  inline static const FunctionInstances all{&short_conv_step<T>};
};
template struct ShortConvStepKernels<float>;
template struct ShortConvStepKernels<double>;

}  // namespace tapeformer::cpu
