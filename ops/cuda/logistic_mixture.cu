#include "ops/kernels/logistic_mixture.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/logistic_mixture_functions.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kMaxRowsPerBlock = 128;
constexpr int64_t kMaxSharedBytes = 48 << 10;  // maximum shared memory of a block

template <class T>
struct MixtureArrays {
  int64_t rows;
  int mixtures, levels;
  const T* parameters;
  const int64_t* targets;
  const T* scale;
  T *nll, *gradient;
  int rows_per_block;
  int row_stride;  // stride of the rows in shared memory, in elements; odd, to avoid bank conflicts
};

// Computes the log-probability of the level with the center `y` under each mixture component k. `half` is
// half of the width of a level, and `log_width` is the logarithm of the width of a level. On input, p[k] is
// the logit of component k, p[mixtures + k] is the mean, and p[2 * mixtures + k] is the log-scale. On output,
// p contains:
//   p[mixtures + k]       derivative of the log-probability with respect to the mean
//   p[2 * mixtures + k]   derivative of the log-probability with respect to the log-scale
//   p[3 * mixtures + k]   sum of the logit p[k] and the log-probability
// Returns the maximum of p[3 * mixtures + k] over k.
template <LogisticEdge edge, class T>
__device__ T replace_by_components(T* p, int mixtures, T y, T half, T log_width) {
  T largest = -INFINITY;
  for (int k = 0; k < mixtures; ++k) {
    const LogisticComponent<T> c = compute_logistic_component<DeviceMath, edge>(
        y, p[mixtures + k], p[2 * mixtures + k], half, log_width);
    p[mixtures + k] = c.mean_derivative;
    p[2 * mixtures + k] = c.log_scale_derivative;
    p[3 * mixtures + k] = p[k] + c.log_mass;
    largest = Maximum::apply(largest, p[3 * mixtures + k]);
  }
  return largest;
}

// Returns the negative log-likelihood of `target` for one row. The first 3 * mixtures elements of `p` are the
// parameters of the row, and the last `mixtures` elements are working memory. If kGradient is true, replaces
// the parameters by the derivatives of the negative log-likelihood, times `scale`. If kGradient is false, the
// contents of `p` are undefined after the call.
template <bool kGradient, class T>
__device__ T compute_row_nll(T* p, int mixtures, int levels, int64_t target, T scale) {
  const T half = T(1) / static_cast<T>(levels - 1);
  const T y = static_cast<T>(target) * 2 * half - 1;
  const T log_width = std::log(2 * half);
  T largest_logit = p[0], largest, prior_sum = 0, joint_sum = 0;
  for (int k = 1; k < mixtures; ++k) largest_logit = Maximum::apply(largest_logit, p[k]);
  if (y < T(-0.999))
    largest = replace_by_components<LogisticEdge::low>(p, mixtures, y, half, log_width);
  else if (y > T(0.999))
    largest = replace_by_components<LogisticEdge::high>(p, mixtures, y, half, log_width);
  else
    largest = replace_by_components<LogisticEdge::none>(p, mixtures, y, half, log_width);
  for (int k = 0; k < mixtures; ++k) {
    prior_sum += p[k] = std::exp(p[k] - largest_logit);
    joint_sum += p[3 * mixtures + k] = std::exp(p[3 * mixtures + k] - largest);
  }
  if constexpr (kGradient) {
    const T prior_inverse = 1 / prior_sum, joint_inverse = 1 / joint_sum;
    for (int k = 0; k < mixtures; ++k) {
      const T posterior = p[3 * mixtures + k] * joint_inverse;
      p[k] = scale * (p[k] * prior_inverse - posterior);
      p[mixtures + k] *= -scale * posterior;
      p[2 * mixtures + k] *= -scale * posterior;
    }
  }
  return largest_logit + std::log(prior_sum) - largest - std::log(joint_sum);
}

// Calls f(shared_index, global_index) for each parameter of the rows that a thread block processes. Both
// indices are 0 for the first parameter of the block. The rows are contiguous in global memory, and have the
// stride `row_stride` in shared memory.
template <class F>
__device__ void for_each_parameter(int rows, int width, int row_stride, F&& f) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int row_step = threads / width, column_step = threads % width;
  int row = thread / width, column = thread % width;
  for (int i = thread; i < rows * width; i += threads) {
    f(row * row_stride + column, i);
    row += row_step;
    column += column_step;
    if (column >= width) {
      column -= width;
      ++row;
    }
  }
}

// Computes the negative log-likelihood, and the gradient if kGradient is true, of one row per thread. Each
// block first copies its rows to shared memory, because accesses of the threads to different rows in global
// memory would not be coalesced.
template <class T, bool kGradient>
__global__ void mixture_kernel(MixtureArrays<T> m) {
  T* const shared = get_dynamic_shared_memory<T>();
  const int64_t first = int64_t{blockIdx.x} * m.rows_per_block;
  const int rows = static_cast<int>(m.rows - first < m.rows_per_block ? m.rows - first : m.rows_per_block);
  const int width = 3 * m.mixtures;
  const T* const parameters = m.parameters + first * width;
  for_each_parameter(rows, width, m.row_stride, [&](int to, int from) { shared[to] = parameters[from]; });
  __syncthreads();
  const int thread_row = static_cast<int>(threadIdx.x);
  if (thread_row < rows) {
    const int64_t target = m.targets[first + thread_row];
    const bool is_valid = target >= 0 && target < m.levels;
    const T scale = !is_valid ? static_cast<T>(NAN) : m.scale ? m.scale[first + thread_row] : T{1};
    const T nll =
        compute_row_nll<kGradient>(shared + thread_row * m.row_stride, m.mixtures, m.levels, target, scale);
    m.nll[first + thread_row] = is_valid ? nll : static_cast<T>(NAN);
  }
  if constexpr (kGradient) {
    __syncthreads();
    T* const gradient = m.gradient + first * width;
    for_each_parameter(rows, width, m.row_stride, [&](int from, int to) { gradient[to] = shared[from]; });
  }
}

// Samples one byte from the mixture of each row. Each thread processes one row. Like the CPU kernel, the CUDA
// kernel computes in double precision, so that both backends give the same bytes. Each thread block first
// copies its rows to shared memory, where the stride between rows is `row_stride`.
template <class T>
__global__ void sample_kernel(int64_t rows, int mixtures, int row_stride, const T* parameters,
                              GraphRandomStream step_stream, int64_t first, bool use_elu_scale,
                              uint8_t* out) {
  const RandomStream stream = step_stream.current_stream();
  T* const shared = get_dynamic_shared_memory<T>();
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x, row = begin + threadIdx.x;
  const int block_row_count = static_cast<int>(rows - begin < blockDim.x ? rows - begin : blockDim.x);
  const T* const block_parameters = parameters + begin * 3 * mixtures;
  for_each_parameter(block_row_count, 3 * mixtures, row_stride,
                     [&](int to, int from) { shared[to] = block_parameters[from]; });
  __syncthreads();
  if (row < rows) {
    const T* const p = shared + static_cast<int>(threadIdx.x) * row_stride;
    T largest = p[0];
    for (int k = 1; k < mixtures; ++k) largest = Maximum::apply(largest, p[k]);
    const auto weight = [&](int k) { return std::exp(static_cast<double>(p[k] - largest)); };
    double total = 0;
    for (int k = 0; k < mixtures; ++k) total += weight(k);
    const auto element = static_cast<uint64_t>(2 * (first + row));
    int chosen = 0;
    double remaining = stream.uniform(element) * total - weight(0);
    while (remaining > 0 && chosen + 1 < mixtures) remaining -= weight(++chosen);
    const double mean = static_cast<double>(p[mixtures + chosen]),
                 log_scale = static_cast<double>(p[2 * mixtures + chosen]);
    const double elu = log_scale > 0 ? log_scale : std::expm1(log_scale);
    const double scale =
        use_elu_scale ? elu + 1.0001 : std::exp(Maximum::apply(log_scale, kMinLogisticLogScale));
    const double u = stream.uniform(element + 1);
    const double value = mean + scale * (std::log(u) - std::log1p(-u));
    const double level = std::nearbyint((value + 1) / 2 * 255);
    out[row] = static_cast<uint8_t>(level > 0 ? (level < 255 ? level : 255) : 0);
  }
}

}  // namespace

template <class T>
void compute_logistic_mixture_nll(Backend, int64_t rows, int64_t mixtures, int64_t levels,
                                  const T* parameters, const int64_t* targets, const T* scale, T* nll,
                                  T* gradient) {
  const int64_t row_stride = 4 * mixtures + 1, bytes = row_stride * static_cast<int64_t>(sizeof(T));
  const int64_t rows_per_block = std::min(kMaxRowsPerBlock, kMaxSharedBytes / bytes);
  const MixtureArrays<T> m{rows,
                           static_cast<int>(mixtures),
                           static_cast<int>(levels),
                           parameters,
                           targets,
                           scale,
                           nll,
                           gradient,
                           static_cast<int>(rows_per_block),
                           static_cast<int>(row_stride)};
  const auto threads = static_cast<unsigned>((rows_per_block + kWarpSize - 1) / kWarpSize * kWarpSize);
  const LaunchConfig shape(dim3(static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block)),
                           dim3(threads), static_cast<size_t>(rows_per_block * bytes));
  if (gradient)
    launch(mixture_kernel<T, true>, shape, m);
  else
    launch(mixture_kernel<T, false>, shape, m);
}

template <class T>
void sample_logistic_mixture(Backend, int64_t rows, int64_t mixtures, const T* parameters,
                             const RandomStream& stream, int64_t first, bool use_elu_scale, uint8_t* out) {
  // Usually there are few rows. Small blocks distribute them over more multiprocessors.
  constexpr int64_t kMaxThreads = 64;
  const int64_t row_stride =
      3 * mixtures % 2 == 0 ? 3 * mixtures + 1 : 3 * mixtures;  // odd, to avoid bank conflicts
  const int64_t row_bytes = row_stride * static_cast<int64_t>(sizeof(T));
  const int64_t threads = std::clamp<int64_t>(kMaxSharedBytes / row_bytes, 1, kMaxThreads);
  launch(sample_kernel<T>,
         LaunchConfig(dim3(static_cast<unsigned>((rows + threads - 1) / threads)),
                      dim3(static_cast<unsigned>(threads)), static_cast<size_t>(threads * row_bytes)),
         rows, static_cast<int>(mixtures), static_cast<int>(row_stride), parameters,
         GraphRandomStream(stream), first, use_elu_scale, out);
}

template <class T>
struct LogisticMixtureKernels {
  inline static const FunctionInstances all{&compute_logistic_mixture_nll<T>, &sample_logistic_mixture<T>};
};
TAPEFORMER_FLOAT(template struct LogisticMixtureKernels<float>;)
TAPEFORMER_DOUBLE(template struct LogisticMixtureKernels<double>;)

}  // namespace tapeformer::cuda
