#include "ops/kernels/logistic_mixture.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"
#include "ops/kernels/logistic_mixture_functions.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kMaxRows = 128;  // maximum number of rows per block
constexpr int64_t kSharedBytes = 48 << 10;

template <class T>
struct Mixture {
  int64_t rows;
  int mixtures, levels;
  const T* parameters;
  const int64_t* targets;
  const T* scale;
  T *nll, *gradient;
  int block_rows;  // rows per block
  int stride;      // elements per row in shared memory; odd, to avoid bank conflicts
};

// For each component k, replaces the mean and the log-scale by the derivatives of the log-probability of the
// component with respect to them. Writes the sum of the logit and the log-probability to p[3 * mixtures + k].
// Returns the maximum of these sums.
template <LogisticEdge edge, class T>
__device__ T replace_by_components(T* p, int mixtures, T y, T half, T log_width) {
  T largest = -INFINITY;
  for (int k = 0; k < mixtures; ++k) {
    const LogisticComponent<T> c =
        logistic_component<DeviceMath, edge>(y, p[mixtures + k], p[2 * mixtures + k], half, log_width);
    p[mixtures + k] = c.mean_derivative;
    p[2 * mixtures + k] = c.log_scale_derivative;
    p[3 * mixtures + k] = p[k] + c.log_mass;
    largest = Maximum::apply(largest, p[3 * mixtures + k]);
  }
  return largest;
}

// Returns the negative log-likelihood of one row. If kGradient is true, replaces the parameters by its
// derivatives times `scale`; otherwise overwrites them.
template <bool kGradient, class T>
__device__ T row_nll(T* p, int mixtures, int levels, int64_t target, T scale) {
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

// Calls f(index in shared memory, index from the first element of the block) for the parameters of the rows
// of a block.
template <class F>
__device__ void for_parameters(int rows, int width, int stride, F&& f) {
  const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int row_step = threads / width, column_step = threads % width;
  int row = thread / width, column = thread % width;
  for (int i = thread; i < rows * width; i += threads) {
    f(row * stride + column, i);
    row += row_step;
    column += column_step;
    if (column >= width) {
      column -= width;
      ++row;
    }
  }
}

// Processes one row per thread. Rows are too short for coalesced accesses, so each block first copies its
// rows to shared memory.
template <class T, bool kGradient>
__global__ void mixture_kernel(Mixture<T> m) {
  T* const shared = dynamic_shared<T>();
  const int64_t first = int64_t{blockIdx.x} * m.block_rows;
  const int rows = static_cast<int>(m.rows - first < m.block_rows ? m.rows - first : m.block_rows);
  const int width = 3 * m.mixtures;
  const T* const parameters = m.parameters + first * width;
  for_parameters(rows, width, m.stride, [&](int to, int from) { shared[to] = parameters[from]; });
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x);
  if (own < rows) {
    const int64_t target = m.targets[first + own];
    const bool inside = target >= 0 && target < m.levels;
    const T scale = !inside ? static_cast<T>(NAN) : m.scale ? m.scale[first + own] : T{1};
    const T nll = row_nll<kGradient>(shared + own * m.stride, m.mixtures, m.levels, target, scale);
    m.nll[first + own] = inside ? nll : static_cast<T>(NAN);
  }
  if constexpr (kGradient) {
    __syncthreads();
    T* const gradient = m.gradient + first * width;
    for_parameters(rows, width, m.stride, [&](int from, int to) { gradient[to] = shared[from]; });
  }
}

// Samples in double, as on the CPU, so that both backends give the same bytes. Each block has one row per
// thread, and first copies its rows to shared memory, with `stride` elements per row.
template <class T>
__global__ void sample_kernel(int64_t rows, int mixtures, int stride, const T* parameters,
                              GraphRandomStream step_stream, int64_t first, bool use_elu_scale,
                              uint8_t* out) {
  const RandomStream stream = step_stream.now();
  T* const shared = dynamic_shared<T>();
  const int64_t begin = int64_t{blockIdx.x} * blockDim.x, row = begin + threadIdx.x;
  const int here = static_cast<int>(rows - begin < blockDim.x ? rows - begin : blockDim.x);
  const T* const own = parameters + begin * 3 * mixtures;
  for_parameters(here, 3 * mixtures, stride, [&](int to, int from) { shared[to] = own[from]; });
  __syncthreads();
  if (row < rows) {
    const T* const p = shared + static_cast<int>(threadIdx.x) * stride;
    T largest = p[0];
    for (int k = 1; k < mixtures; ++k) largest = Maximum::apply(largest, p[k]);
    const auto weight = [&](int k) { return std::exp(static_cast<double>(p[k] - largest)); };
    double total = 0;
    for (int k = 0; k < mixtures; ++k) total += weight(k);
    const auto element = static_cast<uint64_t>(2 * (first + row));
    int chosen = 0;
    double rest = stream.uniform(element) * total - weight(0);
    while (rest > 0 && chosen + 1 < mixtures) rest -= weight(++chosen);
    const double mean = static_cast<double>(p[mixtures + chosen]),
                 log_scale = static_cast<double>(p[2 * mixtures + chosen]);
    const double elu = log_scale > 0 ? log_scale : std::expm1(log_scale);
    const double scale =
        use_elu_scale ? elu + 1.0001 : std::exp(Maximum::apply(log_scale, kMinLogisticScale));
    const double u = stream.uniform(element + 1);
    const double value = mean + scale * (std::log(u) - std::log1p(-u));
    const double level = std::nearbyint((value + 1) / 2 * 255);
    out[row] = static_cast<uint8_t>(level > 0 ? (level < 255 ? level : 255) : 0);
  }
}

}  // namespace

template <class T>
void logistic_mixture(Backend, int64_t rows, int64_t mixtures, int64_t levels, const T* parameters,
                      const int64_t* targets, const T* scale, T* nll, T* gradient) {
  const int64_t stride = 4 * mixtures + 1, bytes = stride * static_cast<int64_t>(sizeof(T));
  const int64_t block_rows = std::min(kMaxRows, kSharedBytes / bytes);
  const Mixture<T> m{
      rows,     static_cast<int>(mixtures),   static_cast<int>(levels), parameters, targets, scale, nll,
      gradient, static_cast<int>(block_rows), static_cast<int>(stride)};
  const auto threads = static_cast<unsigned>((block_rows + kWarpSize - 1) / kWarpSize * kWarpSize);
  const Launch shape(dim3(static_cast<unsigned>((rows + block_rows - 1) / block_rows)), dim3(threads),
                     static_cast<size_t>(block_rows * bytes));
  if (gradient)
    launch(mixture_kernel<T, true>, shape, m);
  else
    launch(mixture_kernel<T, false>, shape, m);
}

template <class T>
void sample_logistic_mixture(Backend, int64_t rows, int64_t mixtures, const T* parameters,
                             const RandomStream& stream, int64_t first, bool use_elu_scale, uint8_t* out) {
  // Blocks are small, because there are few rows.
  constexpr int64_t kMaxThreads = 64;
  const int64_t stride = 3 * mixtures % 2 == 0 ? 3 * mixtures + 1 : 3 * mixtures;  // odd, as in Mixture
  const int64_t row_bytes = stride * static_cast<int64_t>(sizeof(T));
  const int64_t threads = std::clamp<int64_t>(kSharedBytes / row_bytes, 1, kMaxThreads);
  launch(sample_kernel<T>,
         Launch(dim3(static_cast<unsigned>((rows + threads - 1) / threads)),
                dim3(static_cast<unsigned>(threads)), static_cast<size_t>(threads * row_bytes)),
         rows, static_cast<int>(mixtures), static_cast<int>(stride), parameters, GraphRandomStream(stream),
         first, use_elu_scale, out);
}

template <class T>
struct LogisticMixtureKernels {
  inline static const Instances all{&logistic_mixture<T>, &sample_logistic_mixture<T>};
};
TAPEFORMER_FLOAT(template struct LogisticMixtureKernels<float>;)
TAPEFORMER_DOUBLE(template struct LogisticMixtureKernels<double>;)

}  // namespace tapeformer::cuda
