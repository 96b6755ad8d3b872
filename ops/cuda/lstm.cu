// Valid frames are packed by step. Step s has one row for each sequence longer than s, from the longest to
// the shortest. The row contains frame s of the sequence, counted from the end in the reverse direction. At
// each step, both directions have the same rows.
//
// The products that do not depend on the previous step are computed as one product over all packed rows. Each
// step runs one product for both directions and one kernel for the gates.
#include "ops/kernels/lstm.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "core/instances.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/linear.h"

namespace tapeformer::cuda {
namespace {

// The packing of the valid frames. The arrays are in device memory.
struct Packing {
  int64_t batch, frames, hidden, directions, rows;  // rows: number of packed rows of a direction
  const int64_t* sequence;                          // (batch,) index of the sequence in row r of a step
  const int64_t* length;                            // (batch,) length of the sequence in row r
  const int64_t* first;                             // (frames,) packed row at which a step begins

  // Returns the index, in the (batch, frames) order, of the frame that row r contains at step s of direction
  // d.
  __device__ int64_t frame(int64_t d, int64_t r, int64_t s) const {
    return sequence[r] * frames + (d == 0 ? s : length[r] - 1 - s);
  }
};

// The packing in host memory, and its copy in device memory.
class Plan {
 public:
  Plan(const LstmShape& shape, const int64_t* lengths)
      : shape_(shape),
        list_(static_cast<size_t>(2 * shape.batch + shape.frames)),
        copy_(2 * shape.batch + shape.frames) {
    int64_t* const sequence = list_.data();
    int64_t* const length = sequence + shape.batch;
    int64_t* const first = length + shape.batch;
    std::iota(sequence, length, 0);
    std::stable_sort(sequence, length, [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    for (int64_t row = 0; row < shape.batch; ++row) length[row] = lengths[sequence[row]];
    steps_ = shape.batch > 0 ? length[0] : 0;
    int64_t active = shape.batch;
    for (int64_t s = 0; s < shape.frames; ++s) {
      first[s] = rows_;
      while (active > 0 && length[active - 1] <= s) --active;
      rows_ += active;
    }
    copy_bytes(copy_.data(), current_device, list_.data(), kCpu,
               static_cast<int64_t>(list_.size() * sizeof(int64_t)));
  }

  int64_t steps() const { return steps_; }
  int64_t rows() const { return rows_; }
  int64_t first(int64_t s) const { return list_[static_cast<size_t>(2 * shape_.batch + s)]; }
  int64_t active(int64_t s) const { return (s + 1 < shape_.frames ? first(s + 1) : rows_) - first(s); }
  Packing on_device() const {
    return {shape_.batch,
            shape_.frames,
            shape_.hidden,
            shape_.directions,
            rows_,
            copy_.data(),
            copy_.data() + shape_.batch,
            copy_.data() + 2 * shape_.batch};
  }

 private:
  LstmShape shape_;
  int64_t steps_ = 0, rows_ = 0;
  std::vector<int64_t> list_;  // the arrays sequence, length and first of Packing
  Scratch<int64_t> copy_;
};

// Packs x (batch, frames, stride) into packed (directions, rows, width). A row of step s receives `width`
// elements of the frame at step s - steps_back, or zeros before the first frame. The columns of the second
// direction begin `offset` elements after the columns of the first.
template <class T>
__global__ void pack_kernel(Packing p, const T* x, int64_t width, int64_t stride, int64_t offset,
                            int64_t steps_back, T* packed) {
  const int64_t n = p.directions * p.frames * p.batch * width;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t column = i % width, r = i / width % p.batch, s = i / width / p.batch % p.frames,
                  d = i / width / p.batch / p.frames;
    if (s >= p.length[r]) continue;
    packed[(d * p.rows + p.first[s] + r) * width + column] =
        s < steps_back ? T{0} : x[p.frame(d, r, s - steps_back) * stride + d * offset + column];
  }
}

// Writes gx (batch, frames, in), the sum of packed (directions, rows, in) over the directions. Padding frames
// get zeros.
template <class T>
__global__ void unpack_kernel(Packing p, const T* packed, int64_t in, T* gx) {
  const int64_t n = p.batch * p.frames * in;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t column = i % in, t = i / in % p.frames, r = i / in / p.frames, length = p.length[r];
    T sum = 0;
    if (t < length) {
      sum = packed[(p.first[t] + r) * in + column];
      if (p.directions == 2) sum += packed[(p.rows + p.first[length - 1 - t] + r) * in + column];
    }
    gx[(p.sequence[r] * p.frames + t) * in + column] = sum;
  }
}

template <class T>
struct ForwardStep {
  int64_t step, active;
  const T* bias[2];    // bias of the recurrent product
  const T* recurrent;  // (directions, batch, 4 hidden): U h of the previous step; null at the first step
  T *gates, *cells;    // (directions, rows, …)
  T* h;                // (directions, batch, hidden)
  T* out;
};

// Computes c and h of a step from `gates`, which holds W x + bias_ih and receives i, f, g, o.
template <class T>
__global__ void forward_step_kernel(Packing p, ForwardStep<T> f) {
  const int64_t n = p.directions * f.active * p.hidden, hidden = p.hidden;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t unit = i % hidden, r = i / hidden % f.active, d = i / hidden / f.active;
    const int64_t row = d * p.rows + p.first[f.step] + r;
    const T* const bias = d == 0 ? f.bias[0] : f.bias[1];
    T* const gates = f.gates + row * 4 * hidden + unit;
    T z[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      z[gate] = gates[gate * hidden] + bias[gate * hidden + unit];
      if (f.recurrent) z[gate] += f.recurrent[((d * p.batch + r) * 4 + gate) * hidden + unit];
    }
    const T in = DeviceMath::sigmoid(z[0]), forget = DeviceMath::sigmoid(z[1]),
            candidate = DeviceMath::tanh(z[2]), open = DeviceMath::sigmoid(z[3]);
    const T before = f.step == 0 ? T{0} : f.cells[(d * p.rows + p.first[f.step - 1] + r) * hidden + unit];
    const T cell = forget * before + in * candidate, h = open * DeviceMath::tanh(cell);
    gates[0] = in;
    gates[hidden] = forget;
    gates[2 * hidden] = candidate;
    gates[3 * hidden] = open;
    f.cells[row * hidden + unit] = cell;
    f.h[(d * p.batch + r) * hidden + unit] = h;
    f.out[p.frame(d, r, f.step) * p.directions * hidden + d * hidden + unit] = h;
  }
}

template <class T>
struct BackwardStep {
  int64_t step, active;
  const T *g, *gates, *cells;
  const T* gh;  // (directions, batch, hidden): gradient of h from the next step
  T* gc;        // (directions, batch, hidden): gradient of c from the next step; updated in place
  T* gz;        // (directions, rows, 4 hidden)
};

// Computes gz, the gradient with respect to the pre-activations of the gates, and updates gc.
template <class T>
__global__ void backward_step_kernel(Packing p, BackwardStep<T> b) {
  const int64_t n = p.directions * b.active * p.hidden, hidden = p.hidden;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t unit = i % hidden, r = i / hidden % b.active, d = i / hidden / b.active;
    const int64_t row = d * p.rows + p.first[b.step] + r, state = (d * p.batch + r) * hidden + unit;
    const T* const gates = b.gates + row * 4 * hidden + unit;
    const T in = gates[0], forget = gates[hidden], candidate = gates[2 * hidden], open = gates[3 * hidden];
    const T before = b.step == 0 ? T{0} : b.cells[(d * p.rows + p.first[b.step - 1] + r) * hidden + unit];
    const T squashed = DeviceMath::tanh(b.cells[row * hidden + unit]);
    const T by_h = b.g[p.frame(d, r, b.step) * p.directions * hidden + d * hidden + unit] + b.gh[state];
    const T by_c = b.gc[state] + by_h * open * (1 - squashed * squashed);
    T* const gz = b.gz + row * 4 * hidden + unit;
    gz[0] = by_c * candidate * in * (1 - in);
    gz[hidden] = by_c * before * forget * (1 - forget);
    gz[2 * hidden] = by_c * in * (1 - candidate * candidate);
    gz[3 * hidden] = by_h * squashed * open * (1 - open);
    b.gc[state] = by_c * forget;
  }
}

template <class T>
void zero(const Scratch<T>& memory, int64_t count) {
  fill_zero(memory.data(), count * static_cast<int64_t>(sizeof(T)));
}

// The weights weight_hh of all directions in one array, as the batched product of both directions requires.
template <class T>
class RecurrentWeights {
 public:
  RecurrentWeights(const LstmShape& shape, const LstmDirectionWeights<T>* directions)
      : joined_(shape.directions == 1 ? 0 : 2 * 4 * shape.hidden * shape.hidden),
        data_(shape.directions == 1 ? directions[0].weight_hh : joined_.data()) {
    const int64_t size = 4 * shape.hidden * shape.hidden;
    for (int64_t d = 0; d < 2 && shape.directions == 2; ++d)
      copy_bytes(joined_.data() + d * size, current_device, directions[d].weight_hh, current_device,
                 size * static_cast<int64_t>(sizeof(T)));
  }
  const T* data() const { return data_; }

 private:
  Scratch<T> joined_;
  const T* data_;
};

template <class T>
void pack(const Packing& p, const T* x, int64_t width, int64_t stride, int64_t offset, int64_t steps_back,
          T* packed) {
  launch(pack_kernel<T>, over_elements(p.directions * p.frames * p.batch * width), p, x, width, stride,
         offset, steps_back, packed);
}

LinearShape input_product(const LstmShape& shape, int64_t rows) {
  return {rows, shape.in, 4 * shape.hidden};
}

}  // namespace

template <class T>
void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                  const LstmDirectionWeights<T>* directions, T* out, T* gates, T* cells) {
  const Plan plan(shape, lengths);
  const Packing packing = plan.on_device();
  const int64_t hidden = shape.hidden, all = 4 * hidden, rows = plan.rows();
  fill_zero(out, shape.batch * shape.frames * shape.directions * hidden * static_cast<int64_t>(sizeof(T)));
  const Scratch<T> packed(shape.directions * rows * shape.in);
  pack(packing, x, shape.in, shape.in, 0, 0, packed.data());
  for (int64_t d = 0; d < shape.directions; ++d)
    linear_forward<T, T>(Backend{}, input_product(shape, rows), packed.data() + d * rows * shape.in,
                         directions[d].weight_ih, directions[d].bias_ih, Activation::none, DropoutMask{},
                         nullptr, gates + d * rows * all);
  const RecurrentWeights<T> weights(shape, directions);
  const Scratch<T> h(shape.directions * shape.batch * hidden),
      recurrent(shape.directions * shape.batch * all);
  for (int64_t s = 0; s < plan.steps(); ++s) {
    const int64_t active = plan.active(s);
    if (s > 0)
      batched_gemm(Backend{},
                   Gemm<T>{.transpose_b = true,
                           .m = active,
                           .n = all,
                           .k = hidden,
                           .a = h.data(),
                           .lda = hidden,
                           .b = weights.data(),
                           .ldb = hidden,
                           .c = recurrent.data(),
                           .ldc = all},
                   shape.directions, shape.batch * hidden, all * hidden, shape.batch * all);
    launch(forward_step_kernel<T>, over_elements(shape.directions * active * hidden), packing,
           ForwardStep<T>{s,
                          active,
                          {directions[0].bias_hh, shape.directions == 2 ? directions[1].bias_hh : nullptr},
                          s > 0 ? recurrent.data() : nullptr,
                          gates,
                          cells,
                          h.data(),
                          out});
  }
}

template <class T>
void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                   const LstmDirectionWeights<T>* directions, const T* out, const T* gates, const T* cells,
                   T* gx, const LstmDirectionGradients<T>* gradients) {
  const Plan plan(shape, lengths);
  const Packing packing = plan.on_device();
  const int64_t hidden = shape.hidden, all = 4 * hidden, rows = plan.rows(), in = shape.in;
  const int64_t states = shape.directions * shape.batch * hidden;
  const Scratch<T> gz(shape.directions * rows * all);
  {
    const RecurrentWeights<T> weights(shape, directions);
    const Scratch<T> gh(states), gc(states);
    zero(gh, states);  // the gradients of h and c after the last step of each sequence are 0
    zero(gc, states);
    for (int64_t s = plan.steps() - 1; s >= 0; --s) {
      const int64_t active = plan.active(s);
      launch(backward_step_kernel<T>, over_elements(shape.directions * active * hidden), packing,
             BackwardStep<T>{s, active, g, gates, cells, gh.data(), gc.data(), gz.data()});
      if (s == 0) break;
      batched_gemm(Backend{},
                   Gemm<T>{.m = active,
                           .n = hidden,
                           .k = all,
                           .a = gz.data() + plan.first(s) * all,
                           .lda = all,
                           .b = weights.data(),
                           .ldb = hidden,
                           .c = gh.data(),
                           .ldc = hidden},
                   shape.directions, rows * all, all * hidden, shape.batch * hidden);
    }
  }
  {
    // `before` holds h of the previous step for each packed row, and zeros at the first step.
    const Scratch<T> before(shape.directions * rows * hidden);
    pack(packing, out, hidden, shape.directions * hidden, hidden, 1, before.data());
    for (int64_t d = 0; d < shape.directions; ++d)
      if (gradients[d].weight_hh)
        linear_backward<T, T>(Backend{}, {rows, hidden, all}, gz.data() + d * rows * all,
                              before.data() + d * rows * hidden, directions[d].weight_hh, Activation::none,
                              DropoutMask{}, nullptr, nullptr, nullptr, gradients[d].weight_hh, nullptr);
  }
  const Scratch<T> packed(shape.directions * rows * in), gx_rows(gx ? shape.directions * rows * in : 0);
  pack(packing, x, in, in, 0, 0, packed.data());
  for (int64_t d = 0; d < shape.directions; ++d)
    linear_backward<T, T>(Backend{}, input_product(shape, rows), gz.data() + d * rows * all,
                          packed.data() + d * rows * in, directions[d].weight_ih, Activation::none,
                          DropoutMask{}, nullptr, nullptr, gx ? gx_rows.data() + d * rows * in : nullptr,
                          gradients[d].weight_ih, gradients[d].bias);
  if (gx)
    launch(unpack_kernel<T>, over_elements(shape.batch * shape.frames * in), packing, gx_rows.data(), in, gx);
}

template <class T>
struct LstmKernels {
  inline static const Instances all{&lstm_forward<T>, &lstm_backward<T>};
};
TAPEFORMER_FLOAT(template struct LstmKernels<float>;)
TAPEFORMER_DOUBLE(template struct LstmKernels<double>;)

}  // namespace tapeformer::cuda
