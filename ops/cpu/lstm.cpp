// The products of the recurrence have few rows and use recurrent_operand.h, because oneDNN pads the rows to
// blocks of 16. With 320 cells in float32 on one core of a Zen 5, oneDNN takes 51 us per block of 16 rows.
// recurrent_operand.h takes 13 us for 1 row and 25 us for 8 rows. Products of many rows use packed_operand.h.
//
// T is the type of weights, states and sums. O is the type of the operands of matrix products. In bfloat16
// precision, O is BFloat16. Otherwise O is T.
#include "ops/kernels/lstm.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "core/threads/threads.h"
#include "ops/cpu/arena.h"
#include "ops/cpu/packed_operand.h"
#include "ops/cpu/recurrent_operand.h"

namespace tapeformer::cpu {
namespace {

// Number of frames of each sequence whose products with the input weights are computed at once. The number is
// small, so that the recurrence reads the products from the cache.
constexpr int64_t kFramesAhead = 8 * kTileRows;
constexpr int64_t kGradientFrames = 256;  // maximum number of frames in a product for weight gradients

// The sequences that a thread processes in one direction. Each sequence is a row of the matrix products. The
// rows are sorted by descending length, so that for each t, the sequences with more than t frames are the
// first rows.
struct Rows {
  int64_t direction;
  std::vector<int64_t> sequences;

  int64_t count() const { return static_cast<int64_t>(sequences.size()); }
  int64_t at(int64_t row) const { return sequences[static_cast<size_t>(row)]; }
};

// For each direction, divides the sequences among the threads.
std::vector<Rows> divide_sequences(const LstmShape& shape, const int64_t* lengths) {
  std::vector<int64_t> order(static_cast<size_t>(shape.batch));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  const int64_t parts =
      std::clamp<int64_t>(get_thread_count() / shape.directions, 1, std::max<int64_t>(shape.batch, 1));
  std::vector<Rows> shares;
  for (int64_t d = 0; d < shape.directions; ++d)
    for (int64_t part = 0; part < parts; ++part) {
      Rows rows{d, {}};
      for (int64_t i = part; i < shape.batch; i += parts)
        rows.sequences.push_back(order[static_cast<size_t>(i)]);
      shares.push_back(rows);
    }
  return shares;
}

// Addresses of frame t of sequence b in the arrays `gates` (directions, batch, frames, 4 * hidden), `cells`
// (directions, batch, frames, hidden) and `out` (batch, frames, directions * hidden). frame() returns the
// index of the frame in `gates` and `cells`, whose first three dimensions are flattened.
template <class T>
struct Layout {
  const LstmShape& shape;
  int64_t direction;

  int64_t width() const { return shape.directions * shape.hidden; }
  int64_t frame(int64_t b, int64_t t) const { return (direction * shape.batch + b) * shape.frames + t; }
  T* gates(T* all, int64_t b, int64_t t) const { return all + frame(b, t) * 4 * shape.hidden; }
  T* cells(T* all, int64_t b, int64_t t) const { return all + frame(b, t) * shape.hidden; }
  T* out(T* all, int64_t b, int64_t t) const {
    return all + (b * shape.frames + t) * width() + direction * shape.hidden;
  }
};

// The frames of all sequences without padding, one sequence after another. Each frame is a row.
class ValidFrames {
 public:
  ValidFrames(const LstmShape& shape, const int64_t* lengths) : first_(static_cast<size_t>(shape.batch + 1)) {
    std::inclusive_scan(lengths, lengths + shape.batch, first_.begin() + 1);
  }

  int64_t count() const { return first_.back(); }
  int64_t first(int64_t b) const { return first_[static_cast<size_t>(b)]; }

  // Calls f(b, t, count) for each sequence b with rows in [begin, end). These rows are the `count` frames of
  // the sequence that begin at frame t.
  template <class F>
  void for_sequences(int64_t begin, int64_t end, F&& f) const {
    int64_t b = std::upper_bound(first_.begin(), first_.end(), begin) - first_.begin() - 1;
    for (; begin < end; ++b) {
      const int64_t last = std::min(end, first(b + 1));
      if (last > begin) f(b, begin - first(b), last - begin);
      begin = last;
    }
  }

 private:
  std::vector<int64_t> first_;
};

// Computes h and updates c for one frame. On entry, `gates` contains the product of weight_ih and x. On
// return, `gates` contains the values of the gates i, f, g and o. `recurrent` contains the product of
// weight_hh and the previous h.
template <class T>
void forward_cell(int64_t hidden, const T* bias, const T* recurrent, T* gates, T* c, T* h) {
#pragma omp simd
  for (int64_t n = 0; n < hidden; ++n) {
    const int64_t i = n, f = hidden + n, g = 2 * hidden + n, o = 3 * hidden + n;
    const T in = vmath::sigmoid(gates[i] + recurrent[i] + bias[i]);
    const T forget = vmath::sigmoid(gates[f] + recurrent[f] + bias[f]);
    const T candidate = vmath::tanh(gates[g] + recurrent[g] + bias[g]);
    const T output_gate = vmath::sigmoid(gates[o] + recurrent[o] + bias[o]);
    const T cell = forget * c[n] + in * candidate;
    gates[i] = in;
    gates[f] = forget;
    gates[g] = candidate;
    gates[o] = output_gate;
    c[n] = cell;
    h[n] = output_gate * vmath::tanh(cell);
  }
}

// Computes gz, the gradient of the pre-activations of the gates, for one frame. g is the gradient of the
// output, and gh is the gradient of h from the next step. c_before is the value of c of the previous step. gc
// is the gradient of c, and is replaced by the gradient of c_before.
template <class T>
void backward_cell(int64_t hidden, const T* g, const T* gh, const T* gates, const T* c, const T* c_before,
                   T* gc, T* gz) {
#pragma omp simd
  for (int64_t n = 0; n < hidden; ++n) {
    const T in = gates[n], forget = gates[hidden + n], candidate = gates[2 * hidden + n],
            output_gate = gates[3 * hidden + n];
    const T squashed = vmath::tanh(c[n]), total_gh = g[n] + gh[n];
    const T total_gc = gc[n] + total_gh * output_gate * (1 - squashed * squashed);
    gz[n] = total_gc * candidate * in * (1 - in);
    gz[hidden + n] = total_gc * c_before[n] * forget * (1 - forget);
    gz[2 * hidden + n] = total_gc * in * (1 - candidate * candidate);
    gz[3 * hidden + n] = total_gh * squashed * output_gate * (1 - output_gate);
    gc[n] = total_gc * forget;
  }
}

// Calls step(t, active) for each frame t, in ascending or descending order. `active` is the number of
// sequences that contain frame t.
template <class F>
void for_frames(const Rows& rows, const int64_t* lengths, bool ascending, F&& step) {
  const int64_t frames = rows.count() > 0 ? lengths[rows.at(0)] : 0;
  int64_t active = ascending ? rows.count() : 0;
  for (int64_t i = 0; i < frames; ++i) {
    const int64_t t = ascending ? i : frames - 1 - i;
    if (ascending)
      while (active > 0 && lengths[rows.at(active - 1)] <= t) --active;
    else
      while (active < rows.count() && lengths[rows.at(active)] > t) ++active;
    step(t, active);
  }
}

template <class O, class T>
struct ForwardWeights {
  const PackedOperand<O>& input;
  const RecurrentOperand<O>& recurrent;
  const LstmDirectionWeights<T>& unpacked;
};

template <class O, class T>
void forward_rows(const LstmShape& shape, const Rows& rows, const T* x, const int64_t* lengths,
                  const ForwardWeights<O, T>& weights, T* out, T* gates, T* cells) {
  const Layout<T> at{shape, rows.direction};
  const int64_t hidden = shape.hidden, all = 4 * hidden, stride = weights.recurrent.out_stride();
  const Scratch<O> rounded(std::is_same_v<O, T> ? 0 : kFramesAhead * shape.in);
  // For all sequences, computes the products of weight_ih and the frames of the block that begins at frame
  // `first`.
  const auto input_products = [&](int64_t first) {
    for (const int64_t b : rows.sequences)
      if (const int64_t count = std::min(kFramesAhead, lengths[b] - first); count > 0) {
        const T* const block = x + (b * shape.frames + first) * shape.in;
        weights.input.multiply(count, convert_if_needed(block, count * shape.in, rounded.data()),
                               at.gates(gates, b, first));
      }
  };
  int64_t block = -1;
  Scratch<T> bias(all), c(rows.count() * hidden), recurrent(rows.count() * stride);
  Scratch<O> h(rows.count() * hidden);
  for (int64_t i = 0; i < all; ++i)
    bias.data()[i] = weights.unpacked.bias_ih[i] + weights.unpacked.bias_hh[i];
  std::fill_n(h.data(), rows.count() * hidden, O{});
  std::fill_n(c.data(), rows.count() * hidden, T{0});
  for_frames(rows, lengths, rows.direction == 0, [&](int64_t t, int64_t active) {
    if (t / kFramesAhead != block) {
      block = t / kFramesAhead;
      input_products(kFramesAhead * block);
    }
    weights.recurrent.multiply(active, h.data(), recurrent.data());
    for (int64_t row = 0; row < active; ++row) {
      const int64_t b = rows.at(row);
      T *const own_c = c.data() + row * hidden, *const own_h = at.out(out, b, t);
      forward_cell(hidden, bias.data(), recurrent.data() + row * stride, at.gates(gates, b, t), own_c, own_h);
      std::copy_n(own_c, hidden, at.cells(cells, b, t));
      convert_elements(own_h, hidden, h.data() + row * hidden);
    }
  });
  for (const int64_t b : rows.sequences)
    for (int64_t t = lengths[b]; t < shape.frames; ++t) std::fill_n(at.out(out, b, t), hidden, T{0});
}

// The arrays that the steps of lstm_backward() share. gz (directions, valid frames, 4 hidden) is the gradient
// of the pre-activations of the gates.
template <class O, class T>
struct LstmBackward {
  const LstmShape& shape;
  const T *g, *x;
  const int64_t* lengths;
  const T *out, *gates, *cells;
  ValidFrames frames;
  O* gz;

  O* gz_row(int64_t direction, int64_t row) const {
    return gz + (direction * frames.count() + row) * 4 * shape.hidden;
  }
};

// Computes gz, the gradient of the pre-activations, for the sequences in `rows`. Sets gbias to the sum of gz
// over the frames of these sequences. `recurrent` contains weight_hh.
template <class O, class T>
void backward_rows(const LstmBackward<O, T>& gradient, const Rows& rows, const RecurrentOperand<O>& recurrent,
                   T* gbias) {
  const Layout<const T> at{gradient.shape, rows.direction};
  const bool reverse = rows.direction == 1;
  const int64_t hidden = gradient.shape.hidden, all = 4 * hidden, stride = recurrent.out_stride();
  Scratch<T> gh(rows.count() * stride), gc(rows.count() * hidden), now(rows.count() * all), zeros(hidden);
  const Scratch<O> rounded(std::is_same_v<O, T> ? 0 : rows.count() * all);
  std::fill_n(gh.data(), rows.count() * stride, T{0});
  std::fill_n(gc.data(), rows.count() * hidden, T{0});
  std::fill_n(zeros.data(), hidden, T{0});
  std::fill_n(gbias, all, T{0});
  for_frames(rows, gradient.lengths, reverse, [&](int64_t t, int64_t active) {
    for (int64_t row = 0; row < active; ++row) {
      const int64_t b = rows.at(row), before = reverse ? t + 1 : t - 1;
      const bool first = reverse ? before == gradient.lengths[b] : before < 0;
      T* const own = now.data() + row * all;
      backward_cell(hidden, at.out(gradient.g, b, t), gh.data() + row * stride,
                    at.gates(gradient.gates, b, t), at.cells(gradient.cells, b, t),
                    first ? zeros.data() : at.cells(gradient.cells, b, before), gc.data() + row * hidden,
                    own);
      convert_elements(own, all, gradient.gz_row(rows.direction, gradient.frames.first(b) + t));
#pragma omp simd
      for (int64_t i = 0; i < all; ++i) gbias[i] += own[i];
    }
    recurrent.multiply(active, convert_if_needed(now.data(), active * all, rounded.data()), gh.data());
  });
}

// Returns rows [begin, end) of the valid frames of x as type O. Copies the rows to `buffer` only if x has
// padding frames or T is not O.
template <class O, class T>
const O* gather_input_rows(const LstmBackward<O, T>& gradient, int64_t begin, int64_t end, O* buffer) {
  const int64_t in = gradient.shape.in;
  if constexpr (std::is_same_v<O, T>)
    if (gradient.frames.count() == gradient.shape.batch * gradient.shape.frames)
      return gradient.x + begin * in;
  gradient.frames.for_sequences(begin, end, [&](int64_t b, int64_t t, int64_t count) {
    convert_elements(gradient.x + (b * gradient.shape.frames + t) * in, count * in,
                     buffer + (gradient.frames.first(b) + t - begin) * in);
  });
  return buffer;
}

// For each row in [begin, end) of the valid frames, writes the output of the previous step to `h`. Writes
// zeros to `h` for the first step of each sequence.
template <class O, class T>
void gather_previous_states(const LstmBackward<O, T>& gradient, int64_t direction, int64_t begin, int64_t end,
                            O* h) {
  const Layout<const T> at{gradient.shape, direction};
  const int64_t hidden = gradient.shape.hidden;
  gradient.frames.for_sequences(begin, end, [&](int64_t b, int64_t t, int64_t count) {
    for (int64_t i = t; i < t + count; ++i, h += hidden) {
      const int64_t before = direction == 0 ? i - 1 : i + 1;
      if (before < 0 || before == gradient.lengths[b])
        std::fill_n(h, hidden, O{});
      else
        convert_elements(at.out(gradient.out, b, before), hidden, h);
    }
  });
}

// Buffers for a block of frames: inputs x and previous states h, rounded to O.
template <class O>
struct WeightBuffers {
  WeightBuffers(Arena arena, const LstmShape& shape, int64_t rows)
      : x(arena.allocate<O>(rows * shape.in)),
        h(arena.allocate<O>(rows * shape.hidden)),
        bytes(arena.used_bytes()) {}

  O *x, *h;
  int64_t bytes;
};

// Computes the weight gradients of a direction, summed over rows [begin, end) of the valid frames. weight_ih
// and weight_hh may be null.
template <class O, class T>
void sum_weight_gradients(const LstmBackward<O, T>& gradient, int64_t direction, int64_t begin, int64_t end,
                          const WeightBuffers<O>& buffers, T* weight_ih, T* weight_hh) {
  const int64_t hidden = gradient.shape.hidden, all = 4 * hidden, in = gradient.shape.in;
  if (begin == end && weight_ih) std::fill_n(weight_ih, all * in, T{0});
  if (begin == end && weight_hh) std::fill_n(weight_hh, all * hidden, T{0});
  for (int64_t row = begin; row < end; row += kGradientFrames) {
    const int64_t last = std::min(row + kGradientFrames, end);
    const bool add = row > begin;
    const O* const gz = gradient.gz_row(direction, row);
    if (weight_ih)
      multiply_transposed_left(last - row, all, in, gz, gather_input_rows(gradient, row, last, buffers.x),
                               add, weight_ih);
    if (!weight_hh) continue;
    gather_previous_states(gradient, direction, row, last, buffers.h);
    multiply_transposed_left(last - row, all, hidden, gz, buffers.h, add, weight_hh);
  }
}

// Computes the weight gradients. Threads process parts of the valid frames in parallel, and the gradients of
// the parts are added in order.
template <class O, class T>
void compute_weight_gradients(const LstmBackward<O, T>& gradient,
                              const LstmDirectionGradients<T>* gradients) {
  const LstmShape& shape = gradient.shape;
  const int64_t all = 4 * shape.hidden, rows = gradient.frames.count();
  const int64_t parts =
      std::max<int64_t>(std::min(get_thread_count() / shape.directions, rows / kGradientFrames), 1);
  const int64_t input_size = all * shape.in, recurrent_size = all * shape.hidden;
  const Scratch<T> input_sums(shape.directions * (parts - 1) * input_size),
      recurrent_sums(shape.directions * (parts - 1) * recurrent_size);
  const auto partial = [&](int64_t d, int64_t part, T* first, const Scratch<T>& others, int64_t size) {
    return !first || part == 0 ? first : others.data() + (d * (parts - 1) + part - 1) * size;
  };
  const int64_t block = std::min(kGradientFrames, rows);
  const PerThreadMemory memory(WeightBuffers<O>(Arena(nullptr), shape, block).bytes);
  parallel_for(shape.directions * parts, 1, [&](int64_t begin, int64_t end) {
    const WeightBuffers<O> buffers(memory.arena(), shape, block);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t d = i / parts, part = i % parts;
      sum_weight_gradients(gradient, d, rows * part / parts, rows * (part + 1) / parts, buffers,
                           partial(d, part, gradients[d].weight_ih, input_sums, input_size),
                           partial(d, part, gradients[d].weight_hh, recurrent_sums, recurrent_size));
    }
  });
  const auto add_parts = [&](int64_t d, T* sum, const Scratch<T>& others, int64_t size) {
    if (sum) add_partial_sums(others.data() + d * (parts - 1) * size, parts - 1, size, sum);
  };
  for (int64_t d = 0; d < shape.directions; ++d) {
    add_parts(d, gradients[d].weight_ih, input_sums, input_size);
    add_parts(d, gradients[d].weight_hh, recurrent_sums, recurrent_size);
  }
}

// Computes gx, the product of gz and weight_ih, summed over the directions. For padding frames, gx is 0.
template <class O, class T>
void compute_input_gradient(const LstmBackward<O, T>& gradient, const LstmDirectionWeights<T>* directions,
                            T* gx) {
  const LstmShape& shape = gradient.shape;
  const int64_t in = shape.in, blocks = (shape.frames + kFramesAhead - 1) / kFramesAhead;
  std::deque<PackedOperand<O>> weights;
  for (int64_t d = 0; d < shape.directions; ++d)
    weights.emplace_back(4 * shape.hidden, in, directions[d].weight_ih, false);
  const int64_t size = shape.directions == 1 ? 0 : kFramesAhead * in;
  const PerThreadMemory memory(size * static_cast<int64_t>(sizeof(T)));
  parallel_for(shape.batch * blocks, 1, [&](int64_t begin, int64_t end) {
    T* const reverse = memory.arena().template allocate<T>(size);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / blocks, first = i % blocks * kFramesAhead;
      const int64_t last = std::min(first + kFramesAhead, shape.frames);
      const int64_t count = std::max<int64_t>(std::min(last, gradient.lengths[b]) - first, 0);
      const int64_t row = gradient.frames.first(b) + first;
      T* const target = gx + (b * shape.frames + first) * in;
      std::fill(target + count * in, target + (last - first) * in, T{0});
      if (count == 0) continue;
      weights[0].multiply(count, gradient.gz_row(0, row), target);
      if (shape.directions == 1) continue;
      weights[1].multiply(count, gradient.gz_row(1, row), reverse);
#pragma omp simd
      for (int64_t n = 0; n < count * in; ++n) target[n] += reverse[n];
    }
  });
}

// Computes the gradients of the biases and of the pre-activations of the gates (LstmBackward::gz), for all
// directions.
template <class O, class T>
void compute_gate_gradients(const LstmBackward<O, T>& gradient, const LstmDirectionWeights<T>* directions,
                            const LstmDirectionGradients<T>* gradients) {
  const LstmShape& shape = gradient.shape;
  const int64_t all = 4 * shape.hidden;
  const std::vector<Rows> shares = divide_sequences(shape, gradient.lengths);
  const Scratch<T> sums(static_cast<int64_t>(shares.size()) * all);
  std::deque<RecurrentOperand<O>> weights;
  for (int64_t d = 0; d < shape.directions; ++d)
    weights.emplace_back(all, shape.hidden, directions[d].weight_hh, false);
  parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Rows& rows = shares[static_cast<size_t>(i)];
      backward_rows(gradient, rows, weights[static_cast<size_t>(rows.direction)], sums.data() + i * all);
    }
  });
  const int64_t parts = static_cast<int64_t>(shares.size()) / shape.directions;
  for (int64_t d = 0; d < shape.directions; ++d) {
    if (!gradients[d].bias) continue;
    std::fill_n(gradients[d].bias, all, T{0});
    add_partial_sums(sums.data() + d * parts * all, parts, all, gradients[d].bias);
  }
}

}  // namespace

template <class T>
void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                  const LstmDirectionWeights<T>* directions, T* out, T* gates, T* cells) {
  const int64_t all = 4 * shape.hidden;
  const std::vector<Rows> shares = divide_sequences(shape, lengths);
  visit_operand_type<T>([&]<class O>() {
    std::deque<PackedOperand<O>> input;
    std::deque<RecurrentOperand<O>> recurrent;
    for (int64_t d = 0; d < shape.directions; ++d) {
      input.emplace_back(shape.in, all, directions[d].weight_ih, true);
      recurrent.emplace_back(shape.hidden, all, directions[d].weight_hh, true);
    }
    parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Rows& rows = shares[static_cast<size_t>(i)];
        const auto d = static_cast<size_t>(rows.direction);
        const ForwardWeights<O, T> weights{input[d], recurrent[d], directions[d]};
        forward_rows(shape, rows, x, lengths, weights, out, gates, cells);
      }
    });
  });
}

template <class T>
void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                   const LstmDirectionWeights<T>* directions, const T* out, const T* gates, const T* cells,
                   T* gx, const LstmDirectionGradients<T>* gradients) {
  visit_operand_type<T>([&]<class O>() {
    ValidFrames frames(shape, lengths);
    const Scratch<O> gz(shape.directions * frames.count() * 4 * shape.hidden);
    const LstmBackward<O, T> gradient{shape, g, x, lengths, out, gates, cells, std::move(frames), gz.data()};
    compute_gate_gradients(gradient, directions, gradients);
    compute_weight_gradients(gradient, gradients);
    if (gx) compute_input_gradient(gradient, directions, gx);
  });
}

template <class T>
struct LstmKernels {
  inline static const FunctionInstances all{&lstm_forward<T>, &lstm_backward<T>};
};
template struct LstmKernels<float>;
template struct LstmKernels<double>;

}  // namespace tapeformer::cpu
