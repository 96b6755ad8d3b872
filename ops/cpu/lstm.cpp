#include "ops/kernels/lstm.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/cpu/vector_math.h"
#include "core/instances.h"
#include "core/scratch.h"
#include "core/threads.h"
#include "ops/cpu/packed_product.h"
#include "ops/cpu/panel_product.h"
#include "ops/kernels/gemm.h"

namespace tapeformer::cpu {
namespace {

// Frames per block of input products: whole tiles that fit into the last-level cache.
constexpr int64_t kFramesAhead = 8 * kTileRows;

// The sequences of one direction that a thread processes, in the order of decreasing lengths. The sequences
// that have a given frame come first.
struct Rows {
  int64_t direction;
  std::vector<int64_t> sequences;

  int64_t count() const { return static_cast<int64_t>(sequences.size()); }
  int64_t at(int64_t row) const { return sequences[static_cast<size_t>(row)]; }
};

// Divides the sequences among the threads. Sequences are independent, so threads do not wait for each other.
std::vector<Rows> divide_sequences(const LstmShape& shape, const int64_t* lengths) {
  std::vector<int64_t> order(static_cast<size_t>(shape.batch));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
  const int64_t parts =
      std::clamp<int64_t>(threads() / shape.directions, 1, std::max<int64_t>(shape.batch, 1));
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

// The memory layout of a direction.
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

// Computes h and c of one frame. `gates` holds W x and receives i, f, g, o. `recurrent` is U h'.
template <class T>
void forward_cell(int64_t hidden, const T* bias, const T* recurrent, T* gates, T* c, T* h) {
#pragma omp simd
  for (int64_t n = 0; n < hidden; ++n) {
    const int64_t i = n, f = hidden + n, g = 2 * hidden + n, o = 3 * hidden + n;
    const T in = vmath::sigmoid(gates[i] + recurrent[i] + bias[i]);
    const T forget = vmath::sigmoid(gates[f] + recurrent[f] + bias[f]);
    const T candidate = vmath::tanh(gates[g] + recurrent[g] + bias[g]);
    const T open = vmath::sigmoid(gates[o] + recurrent[o] + bias[o]);
    const T cell = forget * c[n] + in * candidate;
    gates[i] = in;
    gates[f] = forget;
    gates[g] = candidate;
    gates[o] = open;
    c[n] = cell;
    h[n] = open * vmath::tanh(cell);
  }
}

// Computes gz, the gradient with respect to the pre-activations of the gates, and replaces gc by the gradient
// of the previous c.
template <class T>
void backward_cell(int64_t hidden, const T* g, const T* gh, const T* gates, const T* c, const T* c_before,
                   T* gc, T* gz) {
#pragma omp simd
  for (int64_t n = 0; n < hidden; ++n) {
    const T in = gates[n], forget = gates[hidden + n], candidate = gates[2 * hidden + n],
            open = gates[3 * hidden + n];
    const T squashed = vmath::tanh(c[n]), by_h = g[n] + gh[n];
    const T by_c = gc[n] + by_h * open * (1 - squashed * squashed);
    gz[n] = by_c * candidate * in * (1 - in);
    gz[hidden + n] = by_c * c_before[n] * forget * (1 - forget);
    gz[2 * hidden + n] = by_c * in * (1 - candidate * candidate);
    gz[3 * hidden + n] = by_h * squashed * open * (1 - open);
    gc[n] = by_c * forget;
  }
}

// Calls step(t, rows) for each frame, in ascending or descending order, with the number of sequences that
// have frame t.
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

// The weights of a direction, packed by rows.
template <class T>
struct ForwardPanels {
  T *input, *recurrent;
};

template <class T>
void forward_rows(const LstmShape& shape, const Rows& rows, const T* x, const int64_t* lengths,
                  const LstmDirection<T>& weights, ForwardPanels<T> panels, T* out, T* gates, T* cells) {
  const Layout<T> at{shape, rows.direction};
  const int64_t hidden = shape.hidden, all = 4 * hidden, stride = tile_columns<T>(all);
  // Computes W x for a block of frames of all sequences. The block is small, so it is used from the cache.
  const auto input_products = [&](int64_t first) {
    for (const int64_t b : rows.sequences)
      if (const int64_t count = std::min(kFramesAhead, lengths[b] - first); count > 0)
        packed_product(count, all, shape.in, x + (b * shape.frames + first) * shape.in, shape.in,
                       panels.input, at.gates(gates, b, first), all);
  };
  int64_t block = -1;  // index of the current block
  Scratch<T> bias(all), h(rows.count() * hidden), c(rows.count() * hidden), recurrent(rows.count() * stride);
  for (int64_t i = 0; i < all; ++i) bias.data()[i] = weights.bias_ih[i] + weights.bias_hh[i];
  std::fill_n(h.data(), rows.count() * hidden, T{0});
  std::fill_n(c.data(), rows.count() * hidden, T{0});
  for_frames(rows, lengths, rows.direction == 0, [&](int64_t t, int64_t active) {
    if (t / kFramesAhead != block) {
      block = t / kFramesAhead;
      input_products(kFramesAhead * block);
    }
    panel_product(active, all, hidden, h.data(), hidden, panels.recurrent, recurrent.data(), stride);
    for (int64_t row = 0; row < active; ++row) {
      const int64_t b = rows.at(row);
      T* const own_h = h.data() + row * hidden;
      T* const own_c = c.data() + row * hidden;
      forward_cell(hidden, bias.data(), recurrent.data() + row * stride, at.gates(gates, b, t), own_c, own_h);
      std::copy_n(own_c, hidden, at.cells(cells, b, t));
      std::copy_n(own_h, hidden, at.out(out, b, t));
    }
  });
  for (const int64_t b : rows.sequences)
    for (int64_t t = lengths[b]; t < shape.frames; ++t) std::fill_n(at.out(out, b, t), hidden, T{0});
}

// Computes gz (directions, batch, frames, 4 hidden) for the frames of the sequences.
template <class T>
void backward_rows(const LstmShape& shape, const Rows& rows, const T* g, const int64_t* lengths,
                   const T* panels, const T* gates, const T* cells, T* gz) {
  const Layout<const T> at{shape, rows.direction};
  const Layout<T> to{shape, rows.direction};
  const bool reverse = rows.direction == 1;
  const int64_t hidden = shape.hidden, all = 4 * hidden, stride = tile_columns<T>(hidden);
  Scratch<T> gh(rows.count() * stride), gc(rows.count() * hidden), now(rows.count() * all), zeros(hidden);
  std::fill_n(gh.data(), rows.count() * stride, T{0});
  std::fill_n(gc.data(), rows.count() * hidden, T{0});
  std::fill_n(zeros.data(), hidden, T{0});
  for_frames(rows, lengths, reverse, [&](int64_t t, int64_t active) {
    for (int64_t row = 0; row < active; ++row) {
      const int64_t b = rows.at(row), before = reverse ? t + 1 : t - 1;
      const bool first = reverse ? before == lengths[b] : before < 0;
      T* const own = now.data() + row * all;
      backward_cell(hidden, at.out(g, b, t), gh.data() + row * stride, at.gates(gates, b, t),
                    at.cells(cells, b, t), first ? zeros.data() : at.cells(cells, b, before),
                    gc.data() + row * hidden, own);
      std::copy_n(own, all, to.gates(gz, b, t));
    }
    panel_product(active, hidden, all, now.data(), all, panels, gh.data(), stride);
  });
}

// Computes rows [begin, end) of the weight gradients of a direction, sequence by sequence, without padding
// frames.
template <class T>
void weight_rows(const LstmShape& shape, int64_t direction, int64_t begin, int64_t end, const T* x,
                 const int64_t* lengths, const T* out, const T* gz, const LstmGradient<T>& gradient) {
  const Layout<const T> at{shape, direction};
  const int64_t hidden = shape.hidden, rows = end - begin;
  if (gradient.weight_ih) std::fill_n(gradient.weight_ih + begin * shape.in, rows * shape.in, T{0});
  if (gradient.weight_hh) std::fill_n(gradient.weight_hh + begin * hidden, rows * hidden, T{0});
  if (gradient.bias) std::fill_n(gradient.bias + begin, rows, T{0});
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t frames = lengths[b];
    if (frames == 0) continue;
    const auto add = [&](int64_t first, int64_t count, const T* with, int64_t width, int64_t stride, T* to) {
      gemm(Backend{}, Gemm<T>{.transpose_a = true,
                              .m = rows,
                              .n = width,
                              .k = count,
                              .a = at.gates(gz, b, first) + begin,
                              .lda = 4 * hidden,
                              .b = with,
                              .ldb = stride,
                              .beta = 1,
                              .c = to + begin * width,
                              .ldc = width});
    };
    if (gradient.weight_ih)
      add(0, frames, x + b * shape.frames * shape.in, shape.in, shape.in, gradient.weight_ih);
    // Each frame is paired with the previous h; the first frame has none.
    if (gradient.weight_hh && direction == 0)
      add(1, frames - 1, at.out(out, b, 0), hidden, at.width(), gradient.weight_hh);
    if (gradient.weight_hh && direction == 1)
      add(0, frames - 1, at.out(out, b, frames > 1 ? 1 : 0), hidden, at.width(), gradient.weight_hh);
    if (gradient.bias)
      for (int64_t t = 0; t < frames; ++t) {
        const T* const row = at.gates(gz, b, t);
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) gradient.bias[i] += row[i];
      }
  }
}

// Computes gx of sequence b. `panels` holds weight_ih of each direction, packed by columns.
template <class T>
void input_gradient(const LstmShape& shape, int64_t b, const int64_t* lengths, const T* panels, const T* gz,
                    T* gx) {
  const int64_t all = 4 * shape.hidden, in = shape.in;
  T* const own = gx + b * shape.frames * in;
  packed_product(lengths[b], in, all, Layout<const T>{shape, 0}.gates(gz, b, 0), all, panels, own, in);
  if (shape.directions == 2)
    packed_product<true>(lengths[b], in, all, Layout<const T>{shape, 1}.gates(gz, b, 0), all,
                         panels + tile_columns<T>(in) * all, own, in);
  std::fill(own + lengths[b] * in, own + shape.frames * in, T{0});
}

}  // namespace

template <class T>
void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                  const LstmDirection<T>* directions, T* out, T* gates, T* cells) {
  const int64_t all = 4 * shape.hidden, columns = tile_columns<T>(all);
  Scratch<T> input(shape.directions * columns * shape.in),
      recurrent(shape.directions * columns * shape.hidden);
  const auto panels = [&](int64_t d) {
    return ForwardPanels<T>{input.data() + d * columns * shape.in,
                            recurrent.data() + d * columns * shape.hidden};
  };
  const std::vector<Rows> shares = divide_sequences(shape, lengths);
  parallel_for(shape.directions, 1, [&](int64_t begin, int64_t end) {
    for (int64_t d = begin; d < end; ++d) {
      pack_rows(directions[d].weight_ih, shape.in, all, shape.in, panels(d).input);
      pack_rows(directions[d].weight_hh, shape.hidden, all, shape.hidden, panels(d).recurrent);
    }
  });
  parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Rows& rows = shares[static_cast<size_t>(i)];
      forward_rows(shape, rows, x, lengths, directions[rows.direction], panels(rows.direction), out, gates,
                   cells);
    }
  });
}

template <class T>
void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                   const LstmDirection<T>* directions, const T* out, const T* gates, const T* cells, T* gx,
                   const LstmGradient<T>* gradients) {
  const int64_t all = 4 * shape.hidden, panel_size = tile_columns<T>(shape.hidden) * all;
  Scratch<T> panels(shape.directions * panel_size);
  Scratch<T> gz(shape.directions * shape.batch * shape.frames * all);
  const std::vector<Rows> shares = divide_sequences(shape, lengths);
  for (int64_t d = 0; d < shape.directions; ++d)
    pack_columns(directions[d].weight_hh, shape.hidden, all, shape.hidden, T{1}, all,
                 panels.data() + d * panel_size);
  parallel_for(static_cast<int64_t>(shares.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Rows& rows = shares[static_cast<size_t>(i)];
      backward_rows(shape, rows, g, lengths, panels.data() + rows.direction * panel_size, gates, cells,
                    gz.data());
    }
  });
  // Each thread computes rows of the weight gradients over all frames.
  const int64_t parts = std::max<int64_t>(threads() / shape.directions, 1);
  parallel_for(shape.directions * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t d = i / parts, part = i % parts;
      weight_rows(shape, d, all * part / parts, all * (part + 1) / parts, x, lengths, out, gz.data(),
                  gradients[d]);
    }
  });
  if (!gx) return;
  const int64_t input_size = tile_columns<T>(shape.in) * all;
  Scratch<T> input(shape.directions * input_size);
  for (int64_t d = 0; d < shape.directions; ++d)
    pack_columns(directions[d].weight_ih, shape.in, all, shape.in, T{1}, all, input.data() + d * input_size);
  parallel_for(shape.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) input_gradient(shape, b, lengths, input.data(), gz.data(), gx);
  });
}

template <class T>
struct LstmKernels {
  inline static const Instances all{&lstm_forward<T>, &lstm_backward<T>};
};
template struct LstmKernels<float>;
template struct LstmKernels<double>;

}  // namespace tapeformer::cpu
