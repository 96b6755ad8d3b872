// LSTM on CUDA. The valid frames of all sequences are packed by step. Step s has one row for each sequence
// with more than s frames, ordered from the longest sequence to the shortest. In the forward direction, the
// row of a sequence in step s contains frame s. In the reverse direction, the row contains frame length - 1 -
// s, where `length` is the number of frames of the sequence. Both directions therefore have the same number
// of rows in each step.
//
// The matrix products that do not depend on the previous step are computed for all packed rows at once. For
// each step, one batched product multiplies the previous h by weight_hh for both directions, and one kernel
// computes the gates.
#include "ops/kernels/lstm.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "ops/kernels/gemm.h"
#include "ops/kernels/linear.h"

namespace tapeformer::cuda {
namespace {

// The layout of the packed rows that the comment at the top of this file describes. All arrays of a
// PackedFrames are in device memory.
struct PackedFrames {
  int64_t batch, frames, hidden, directions;
  int64_t rows;             // number of packed rows of a direction
  const int64_t* sequence;  // (batch,): row r of each step belongs to sequence[r]
  const int64_t* length;    // (batch,): length of sequence[r]
  const int64_t* first;     // (frames,): index of the first packed row of each step

  // Returns the frame that row r of step s contains in direction d, as an index into a (batch, frames)
  // tensor.
  __device__ int64_t compute_frame_index(int64_t d, int64_t r, int64_t s) const {
    return sequence[r] * frames + (d == 0 ? s : length[r] - 1 - s);
  }
};

// Computes the order of the packed rows on the host, and copies it to device memory.
class FramePacker {
 public:
  FramePacker(const LstmShape& shape, const int64_t* lengths)
      : shape_(shape),
        host_arrays_(static_cast<size_t>(2 * shape.batch + shape.frames)),
        device_arrays_(2 * shape.batch + shape.frames) {
    int64_t* const sequence = host_arrays_.data();
    int64_t* const length = sequence + shape.batch;
    int64_t* const first = length + shape.batch;
    std::iota(sequence, length, 0);
    std::stable_sort(sequence, length, [&](int64_t a, int64_t b) { return lengths[a] > lengths[b]; });
    for (int64_t row = 0; row < shape.batch; ++row) length[row] = lengths[sequence[row]];
    steps_ = shape.batch > 0 ? length[0] : 0;
    int64_t active_rows = shape.batch;
    for (int64_t s = 0; s < shape.frames; ++s) {
      first[s] = rows_;
      while (active_rows > 0 && length[active_rows - 1] <= s) --active_rows;
      rows_ += active_rows;
    }
    copy_bytes(device_arrays_.data(), current_device, host_arrays_.data(), kCpu,
               static_cast<int64_t>(host_arrays_.size() * sizeof(int64_t)));
  }

  // Returns the number of steps, which is the maximum length.
  int64_t steps() const { return steps_; }
  int64_t rows() const { return rows_; }
  // Returns the first packed row of step s.
  int64_t first(int64_t s) const { return host_arrays_[static_cast<size_t>(2 * shape_.batch + s)]; }
  int64_t active_rows(int64_t s) const { return (s + 1 < shape_.frames ? first(s + 1) : rows_) - first(s); }
  PackedFrames device_frames() const {
    return {shape_.batch,
            shape_.frames,
            shape_.hidden,
            shape_.directions,
            rows_,
            device_arrays_.data(),
            device_arrays_.data() + shape_.batch,
            device_arrays_.data() + 2 * shape_.batch};
  }

 private:
  LstmShape shape_;
  int64_t steps_ = 0, rows_ = 0;
  // The arrays PackedFrames::sequence, PackedFrames::length and PackedFrames::first, stored one after
  // another.
  std::vector<int64_t> host_arrays_;
  Scratch<int64_t> device_arrays_;
};

// Copies frames of `x`, with shape (batch, frames, stride), to `packed`, with shape (directions, rows,
// width). A row of step s receives the frame of step s - steps_back, or zeros if s < steps_back. For
// direction d, pack_kernel copies the `width` elements that begin at column d * offset.
template <class T>
__global__ void pack_kernel(PackedFrames p, const T* x, int64_t width, int64_t stride, int64_t offset,
                            int64_t steps_back, T* packed) {
  const int64_t n = p.directions * p.frames * p.batch * width;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t column = i % width, r = i / width % p.batch, s = i / width / p.batch % p.frames,
                  d = i / width / p.batch / p.frames;
    if (s >= p.length[r]) continue;
    packed[(d * p.rows + p.first[s] + r) * width + column] =
        s < steps_back ? T{0} : x[p.compute_frame_index(d, r, s - steps_back) * stride + d * offset + column];
  }
}

// Writes the sum of packed (directions, rows, in) over the directions to gx (batch, frames, in). Padding
// frames are set to 0.
template <class T>
__global__ void unpack_kernel(PackedFrames p, const T* packed, int64_t in, T* gx) {
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
  int64_t step, active_rows;
  const T* bias[2];    // bias_hh of each direction, (4 hidden,)
  const T* recurrent;  // (directions, batch, 4 hidden): weight_hh times the previous h; null at step 0
  T *gates, *cells;    // (directions, rows, …)
  T* h;                // (directions, batch, hidden)
  T* out;
};

// Computes c and h of a step. On input, `gates` holds weight_ih x + bias_ih of the step. The kernel replaces
// these values by the gates i, f, g and o.
template <class T>
__global__ void forward_step_kernel(PackedFrames p, ForwardStep<T> f) {
  const int64_t n = p.directions * f.active_rows * p.hidden, hidden = p.hidden;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t unit = i % hidden, r = i / hidden % f.active_rows, d = i / hidden / f.active_rows;
    const int64_t row = d * p.rows + p.first[f.step] + r;
    const T* const bias = d == 0 ? f.bias[0] : f.bias[1];
    T* const gates = f.gates + row * 4 * hidden + unit;
    T z[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      z[gate] = gates[gate * hidden] + bias[gate * hidden + unit];
      if (f.recurrent) z[gate] += f.recurrent[((d * p.batch + r) * 4 + gate) * hidden + unit];
    }
    const T input_gate = DeviceMath::sigmoid(z[0]), forget_gate = DeviceMath::sigmoid(z[1]),
            candidate = DeviceMath::tanh(z[2]), output_gate = DeviceMath::sigmoid(z[3]);
    const T previous_cell =
        f.step == 0 ? T{0} : f.cells[(d * p.rows + p.first[f.step - 1] + r) * hidden + unit];
    const T cell = forget_gate * previous_cell + input_gate * candidate,
            h = output_gate * DeviceMath::tanh(cell);
    gates[0] = input_gate;
    gates[hidden] = forget_gate;
    gates[2 * hidden] = candidate;
    gates[3 * hidden] = output_gate;
    f.cells[row * hidden + unit] = cell;
    f.h[(d * p.batch + r) * hidden + unit] = h;
    f.out[p.compute_frame_index(d, r, f.step) * p.directions * hidden + d * hidden + unit] = h;
  }
}

template <class T>
struct BackwardStep {
  int64_t step, active_rows;
  const T *g, *gates, *cells;
  const T* gh;  // (directions, batch, hidden): gradient of h from the next step
  T* gc;        // (directions, batch, hidden): gradient of c from the next step; updated in place
  T* gz;        // (directions, rows, 4 hidden)
};

// Computes gz, the gradient with respect to the gates of a step before their activation functions. Replaces
// gc by the gradient of the previous c.
template <class T>
__global__ void backward_step_kernel(PackedFrames p, BackwardStep<T> b) {
  const int64_t n = p.directions * b.active_rows * p.hidden, hidden = p.hidden;
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t unit = i % hidden, r = i / hidden % b.active_rows, d = i / hidden / b.active_rows;
    const int64_t row = d * p.rows + p.first[b.step] + r, state = (d * p.batch + r) * hidden + unit;
    const T* const gates = b.gates + row * 4 * hidden + unit;
    const T input_gate = gates[0], forget_gate = gates[hidden], candidate = gates[2 * hidden],
            output_gate = gates[3 * hidden];
    const T previous_cell =
        b.step == 0 ? T{0} : b.cells[(d * p.rows + p.first[b.step - 1] + r) * hidden + unit];
    const T cell_tanh = DeviceMath::tanh(b.cells[row * hidden + unit]);
    const T h_gradient =
        b.g[p.compute_frame_index(d, r, b.step) * p.directions * hidden + d * hidden + unit] + b.gh[state];
    const T c_gradient = b.gc[state] + h_gradient * output_gate * (1 - cell_tanh * cell_tanh);
    T* const gz = b.gz + row * 4 * hidden + unit;
    gz[0] = c_gradient * candidate * input_gate * (1 - input_gate);
    gz[hidden] = c_gradient * previous_cell * forget_gate * (1 - forget_gate);
    gz[2 * hidden] = c_gradient * input_gate * (1 - candidate * candidate);
    gz[3 * hidden] = h_gradient * cell_tanh * output_gate * (1 - output_gate);
    b.gc[state] = c_gradient * forget_gate;
  }
}

template <class T>
void fill_with_zeros(const Scratch<T>& memory, int64_t count) {
  fill_zero(memory.data(), count * static_cast<int64_t>(sizeof(T)));
}

// The weights weight_hh of all directions as one array (directions, 4 hidden, hidden), which batched_gemm()
// requires.
template <class T>
class RecurrentWeights {
 public:
  RecurrentWeights(const LstmShape& shape, const LstmDirectionWeights<T>* directions)
      : joined_weights_(shape.directions == 1 ? 0 : 2 * 4 * shape.hidden * shape.hidden),
        weights_(shape.directions == 1 ? directions[0].weight_hh : joined_weights_.data()) {
    const int64_t size = 4 * shape.hidden * shape.hidden;
    for (int64_t d = 0; d < 2 && shape.directions == 2; ++d)
      copy_bytes(joined_weights_.data() + d * size, current_device, directions[d].weight_hh, current_device,
                 size * static_cast<int64_t>(sizeof(T)));
  }
  const T* data() const { return weights_; }

 private:
  Scratch<T> joined_weights_;
  const T* weights_;
};

template <class T>
void pack_frames(const PackedFrames& p, const T* x, int64_t width, int64_t stride, int64_t offset,
                 int64_t steps_back, T* packed) {
  launch(pack_kernel<T>, make_elementwise_launch(p.directions * p.frames * p.batch * width), p, x, width,
         stride, offset, steps_back, packed);
}

LinearShape make_input_shape(const LstmShape& shape, int64_t rows) {
  return {rows, shape.in, 4 * shape.hidden};
}

}  // namespace

template <class T>
void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                  const LstmDirectionWeights<T>* directions, T* out, T* gates, T* cells) {
  const FramePacker packer(shape, lengths);
  const PackedFrames packed_frames = packer.device_frames();
  const int64_t hidden = shape.hidden, gate_size = 4 * hidden, rows = packer.rows();
  fill_zero(out, shape.batch * shape.frames * shape.directions * hidden * static_cast<int64_t>(sizeof(T)));
  const Scratch<T> packed(shape.directions * rows * shape.in);
  pack_frames(packed_frames, x, shape.in, shape.in, 0, 0, packed.data());
  for (int64_t d = 0; d < shape.directions; ++d)
    linear_forward<T, T>(Backend{}, make_input_shape(shape, rows), packed.data() + d * rows * shape.in,
                         directions[d].weight_ih, directions[d].bias_ih, Activation::none, DropoutMask{},
                         nullptr, gates + d * rows * gate_size);
  const RecurrentWeights<T> weights(shape, directions);
  const Scratch<T> h(shape.directions * shape.batch * hidden),
      recurrent(shape.directions * shape.batch * gate_size);
  for (int64_t s = 0; s < packer.steps(); ++s) {
    const int64_t active_rows = packer.active_rows(s);
    if (s > 0)
      batched_gemm(Backend{},
                   Gemm<T>{.transpose_b = true,
                           .m = active_rows,
                           .n = gate_size,
                           .k = hidden,
                           .a = h.data(),
                           .lda = hidden,
                           .b = weights.data(),
                           .ldb = hidden,
                           .c = recurrent.data(),
                           .ldc = gate_size},
                   shape.directions, shape.batch * hidden, gate_size * hidden, shape.batch * gate_size);
    launch(forward_step_kernel<T>, make_elementwise_launch(shape.directions * active_rows * hidden),
           packed_frames,
           ForwardStep<T>{s,
                          active_rows,
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
  const FramePacker packer(shape, lengths);
  const PackedFrames packed_frames = packer.device_frames();
  const int64_t hidden = shape.hidden, gate_size = 4 * hidden, rows = packer.rows(), in = shape.in;
  const int64_t states = shape.directions * shape.batch * hidden;
  const Scratch<T> gz(shape.directions * rows * gate_size);
  {
    const RecurrentWeights<T> weights(shape, directions);
    const Scratch<T> gh(states), gc(states);
    fill_with_zeros(gh, states);  // the gradients of h and c after the last step of each sequence are 0
    fill_with_zeros(gc, states);
    for (int64_t s = packer.steps() - 1; s >= 0; --s) {
      const int64_t active_rows = packer.active_rows(s);
      launch(backward_step_kernel<T>, make_elementwise_launch(shape.directions * active_rows * hidden),
             packed_frames,
             BackwardStep<T>{s, active_rows, g, gates, cells, gh.data(), gc.data(), gz.data()});
      if (s == 0) break;
      batched_gemm(Backend{},
                   Gemm<T>{.m = active_rows,
                           .n = hidden,
                           .k = gate_size,
                           .a = gz.data() + packer.first(s) * gate_size,
                           .lda = gate_size,
                           .b = weights.data(),
                           .ldb = hidden,
                           .c = gh.data(),
                           .ldc = hidden},
                   shape.directions, rows * gate_size, gate_size * hidden, shape.batch * hidden);
    }
  }
  {
    // `previous_h` holds h of the previous step for each packed row, and zeros at the first step.
    const Scratch<T> previous_h(shape.directions * rows * hidden);
    pack_frames(packed_frames, out, hidden, shape.directions * hidden, hidden, 1, previous_h.data());
    for (int64_t d = 0; d < shape.directions; ++d)
      if (gradients[d].weight_hh)
        linear_backward<T, T>(Backend{}, {rows, hidden, gate_size}, gz.data() + d * rows * gate_size,
                              previous_h.data() + d * rows * hidden, directions[d].weight_hh,
                              Activation::none, DropoutMask{}, nullptr, nullptr, nullptr,
                              gradients[d].weight_hh, nullptr);
  }
  const Scratch<T> packed(shape.directions * rows * in), gx_rows(gx ? shape.directions * rows * in : 0);
  pack_frames(packed_frames, x, in, in, 0, 0, packed.data());
  for (int64_t d = 0; d < shape.directions; ++d)
    linear_backward<T, T>(Backend{}, make_input_shape(shape, rows), gz.data() + d * rows * gate_size,
                          packed.data() + d * rows * in, directions[d].weight_ih, Activation::none,
                          DropoutMask{}, nullptr, nullptr, gx ? gx_rows.data() + d * rows * in : nullptr,
                          gradients[d].weight_ih, gradients[d].bias);
  if (gx)
    launch(unpack_kernel<T>, make_elementwise_launch(shape.batch * shape.frames * in), packed_frames,
           gx_rows.data(), in, gx);
}

template <class T>
struct LstmKernels {
  inline static const FunctionInstances all{&lstm_forward<T>, &lstm_backward<T>};
};
TAPEFORMER_FLOAT(template struct LstmKernels<float>;)
TAPEFORMER_DOUBLE(template struct LstmKernels<double>;)

}  // namespace tapeformer::cuda
