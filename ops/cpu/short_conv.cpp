#include "ops/kernels/short_conv.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;  // minimum number of elements per thread
// The backward pass processes blocks of tokens and channels, so that the rows of a block remain in the L1
// cache. Partial gradients of the weight are sums over fixed numbers of blocks, and are added in a fixed
// order, so results do not depend on the number of threads.
constexpr int64_t kBlockTokens = 64, kBlockChannels = 256, kMaxPartialGradients = 64;
constexpr int kUsualTaps = 4;

int64_t choose_grain(int64_t elements) {
  return std::max<int64_t>(kGrainElements / std::max<int64_t>(elements, 1), 1);
}

// The rows that the taps [begin, end) of a token read.
template <class T>
struct TapRows {
  const T* rows[kMaxShortConvKernel];
  int64_t begin = 0, end = 0;

  bool is_usual() const { return begin == 0 && end == kUsualTaps; }
};

template <class T>
TapRows<T> find_tap_rows(const ShortConvInputs<T>& in, int64_t example, int64_t token) {
  const TokenRange range = in.find_inputs(example, token);
  const int64_t first = token - in.count_earlier();  // the position that tap 0 reads
  TapRows<T> taps;
  taps.begin = range.begin - first, taps.end = range.end - first;
  for (int64_t j = taps.begin; j < taps.end; ++j) taps.rows[j] = in.row(example, first + j);
  return taps;
}

// Returns Σ_j weight[j] row[j] for the channels of a vector. If kTaps is positive, the taps are [0, kTaps).
// `weight` is (kernel, width).
template <int kTaps, class T>
[[gnu::always_inline]] inline Vector<Compute<T>> add_taps(const TapRows<T>& taps, const Compute<T>* weight,
                                                          int64_t width, int64_t channel, int64_t count) {
  Vector<Compute<T>> sum{};
  const int64_t end = kTaps ? kTaps : taps.end;
#pragma GCC unroll 4
  for (int64_t j = kTaps ? 0 : taps.begin; j < end; ++j)
    sum += load(weight + j * width + channel) * load_first(taps.rows[j] + channel, count);
  return sum;
}

// Copies the weight (channels, kernel) to `transposed` (kernel, width), with zeros in channels that do not
// exist.
template <class C>
void transpose_weight(const C* weight, int64_t channels, int64_t kernel, int64_t width, C* transposed) {
  std::fill_n(transposed, kernel * width, C{0});
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t j = 0; j < kernel; ++j) transposed[j * width + c] = weight[c * kernel + j];
}

template <int kTaps, class T>
void compute_result_row(const ShortConvInputs<T>& in, const TapRows<T>& taps, const Compute<T>* weight,
                        int64_t width, T* y) {
  visit_vectors<Compute<T>>(
      0, in.channels, [&](int64_t c, int64_t count) __attribute__((always_inline)) {
        store_first(y + c,
                    compute_gate<VectorMath>(in.activation, add_taps<kTaps>(taps, weight, width, c, count)),
                    count);
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
        recent_(in.kernel * width) {}

  // Computes the gradients of the inputs at the positions [begin, end) of an example, and adds the gradient
  // of the weight from the results of these tokens to gweight (kernel, width), which can be null.
  void run(int64_t example, int64_t begin, int64_t end, int64_t first_channel, int64_t end_channel,
           C* gweight) {
    const bool needs_inputs = gx_ || ghistory_;
    const int64_t valid = in_.get_valid_tokens(example);
    const int64_t first = needs_inputs ? begin - in_.lookahead : begin;
    const int64_t last = needs_inputs ? end + in_.count_earlier() : end;
    begin_ = first_channel, end_ = end_channel;
    for (int64_t t = first; t < last; ++t) {
      if (t >= 0 && t < valid) {
        const TapRows<T> taps = find_tap_rows(in_, example, t);
        C* const own = t >= begin && t < end ? gweight : nullptr;
        const T* const g = g_.row(example, t, 0);
        taps.is_usual() ? compute_sum_gradient<kUsualTaps>(taps, g, get_recent(t), own)
                        : compute_sum_gradient<0>(taps, g, get_recent(t), own);
      }
      if (const int64_t position = t - in_.count_earlier(); needs_inputs && position >= begin)
        compute_input_gradient(example, position);
    }
  }

 private:
  // Returns the gradient of the sum of a token, for the latest `kernel` tokens.
  C* get_recent(int64_t token) const { return recent_.data() + (token % in_.kernel) * width_; }

  // Computes gsum, the gradient of the argument of the activation.
  template <int kTaps>
  void compute_sum_gradient(const TapRows<T>& taps, const T* g, C* gsum, C* gweight) const {
    visit_vectors<C>(
        begin_, end_, [&](int64_t c, int64_t count) __attribute__((always_inline)) {
          Vector<C> v = load_first(g + c, count);
          if (in_.activation != GateActivation::none)
            v *= compute_gate_and_derivative<VectorMath>(in_.activation,
                                                         add_taps<kTaps>(taps, weight_, width_, c, count))
                     .derivative;
          store(gsum + c, v);
          if (!gweight) return;
          const int64_t end = kTaps ? kTaps : taps.end;
#pragma GCC unroll 4
          for (int64_t j = kTaps ? 0 : taps.begin; j < end; ++j) {
            C* const sum = gweight + j * width_ + c;
            store(sum, load(sum) + v * load_first(taps.rows[j] + c, count));
          }
        });
  }

  void compute_input_gradient(int64_t example, int64_t position) const {
    if (position < 0 ? !ghistory_ : !gx_) return;
    T* const target = position < 0 ? ghistory_ + ((example + 1) * (in_.kernel - 1) + position) * in_.channels
                                   : gx_ + (example * in_.length + position) * in_.channels;
    const TokenRange readers = in_.find_readers(example, position);
    TapRows<C> taps;
    const int64_t last = position + in_.count_earlier();  // the token whose tap 0 reads the position
    taps.begin = last + 1 - readers.end, taps.end = last + 1 - readers.begin;
    if (readers.begin == readers.end) taps.begin = taps.end = 0;
    for (int64_t j = taps.begin; j < taps.end; ++j) taps.rows[j] = get_recent(last - j);
    const auto write = [&]<int kTaps>(std::integral_constant<int, kTaps>) {
      visit_vectors<C>(
          begin_, end_, [&](int64_t c, int64_t count) __attribute__((always_inline)) {
            store_first(target + c, add_taps<kTaps>(taps, weight_, width_, c, kLanes<C>), count);
          });
    };
    taps.is_usual() ? write(std::integral_constant<int, kUsualTaps>{})
                    : write(std::integral_constant<int, 0>{});
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
  parallel_for(in.batch * in.length, choose_grain(in.channels), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t example = row / in.length, token = row % in.length;
      T* const out = y + row * in.channels;
      if (token >= in.get_valid_tokens(example)) {
        std::fill_n(out, in.channels, T{});
        continue;
      }
      const TapRows<T> taps = find_tap_rows(in, example, token);
      taps.is_usual() ? compute_result_row<kUsualTaps>(in, taps, weight.data(), width, out)
                      : compute_result_row<0>(in, taps, weight.data(), width, out);
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
