#include "ops/kernels/index.h"

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"
#include "core/instances.h"

namespace tapeformer::cuda {
namespace {

template <class T>
__device__ T not_a_number() {
  return static_cast<T>(NAN);
}

template <class T>
__global__ void gather_kernel(IndexShape s, const T* __restrict__ x, const int64_t* __restrict__ index, T* y,
                              int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t row = i / s.inner, outer = row / s.count, at = index[i];
    const bool inside = at >= 0 && at < s.size;
    y[i] = inside ? x[(outer * s.size + at) * s.inner + i - row * s.inner] : not_a_number<T>();
  }
}

// Computes one column of y per thread. A thread adds the elements of x in the order of `index`, so the result
// is deterministic.
template <class T>
__global__ void scatter_add_kernel(IndexShape s, const T* __restrict__ x, const int64_t* __restrict__ index,
                                   T* y) {
  const int64_t columns = s.outer * s.inner;
  for (int64_t column = first_element(); column < columns; column += element_stride()) {
    const int64_t outer = column / s.inner, inner = column - outer * s.inner;
    for (int64_t c = 0; c < s.count; ++c) {
      const int64_t from = (outer * s.count + c) * s.inner + inner, at = index[from];
      const bool inside = at >= 0 && at < s.size;
      y[(outer * s.size + (inside ? at : 0)) * s.inner + inner] += inside ? x[from] : not_a_number<T>();
    }
  }
}

// Each block has 32 x 8 threads, and each warp copies one row at a time.
constexpr int kTableRowsPerBlock = 8;

Launch over_short_rows(int64_t rows, SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min<int64_t>((rows + kTableRowsPerBlock - 1) / kTableRowsPerBlock, 1 << 16);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kWarpSize, kTableRowsPerBlock), 0, where};
}
__device__ int64_t first_row() {
  return int64_t{blockIdx.x} * kTableRowsPerBlock + threadIdx.y;
}
__device__ int64_t row_stride() {
  return int64_t{gridDim.x} * kTableRowsPerBlock;
}

// Copies row `at` of the table to `to`, or fills `to` with NaN if `at` is out of range.
template <class T>
__device__ void copy_row(const T* __restrict__ table, int64_t rows, int64_t at, T* to, int64_t dim) {
  const bool inside = at >= 0 && at < rows;
  for (int64_t i = threadIdx.x; i < dim; i += kWarpSize)
    to[i] = inside ? table[at * dim + i] : not_a_number<T>();
}

template <class T>
__global__ void gather_rows_kernel(const T* table, int64_t rows, const int64_t* index, T* y, int64_t count,
                                   int64_t dim) {
  for (int64_t row = first_row(); row < count; row += row_stride())
    copy_row(table, rows, index[row], y + row * dim, dim);
}

template <class T, class Index>
__global__ void embed_kernel(const T* table, int64_t rows, const Index* tokens, const T* positions,
                             const T* added, GraphStep step, T* out, int64_t batch, int64_t value_dim,
                             int64_t position_dim) {
  const int64_t width = value_dim + position_dim, position = step.now();
  for (int64_t b = first_row(); b < batch; b += row_stride()) {
    T* const to = out + b * width;
    copy_row(table, rows, static_cast<int64_t>(tokens[b]), to, value_dim);
    copy_row(positions + position * position_dim, 1, 0, to + value_dim, position_dim);
    if (!added) continue;
    __syncwarp();  // the other lanes have written their elements of the row
    for (int64_t i = threadIdx.x % kWarpSize; i < width; i += kWarpSize) to[i] += added[position * width + i];
  }
}

// The following kernels compute the gradient of an embedding. A stable counting sort orders the tokens by
// their row of the table. In the sort, each warp processes one slab of tokens. Then each warp sums one chunk
// of ordered tokens. All chunks have the same length, regardless of the number of tokens per row. If the
// tokens of a row are in several chunks, the partial sums are added at the end.
constexpr int kChunk = 128;        // ordered tokens per warp
constexpr int kColumns = 4;        // columns per lane
constexpr int kTokensPerLoad = 4;  // number of tokens that a lane loads at a time; divides 32
constexpr int kMinSlab = 1024;     // minimum number of tokens per slab
constexpr int64_t kMaxCounters = 1 << 19;
constexpr int kScanThreads = 1024;  // threads of the block of scan_kernel

struct Slabs {
  int64_t count, length;
};
Slabs slabs_of(int64_t count, int64_t rows) {
  const int64_t max_slabs = std::max<int64_t>(kMaxCounters / (rows + 1), 1);
  const int64_t slabs = std::min(max_slabs, (count + kMinSlab - 1) / kMinSlab);
  return {slabs, (count + slabs - 1) / slabs};
}

// Returns the row of token i, or `rows` if the row is out of range.
__device__ int row_of(const int64_t* index, int64_t i, int rows) {
  const int64_t row = index[i];
  return row >= 0 && row < rows ? static_cast<int>(row) : rows;
}

// Counts the tokens of each row in each slab: counters (rows + 1, slabs).
__global__ void count_tokens_kernel(const int64_t* index, int64_t count, int rows, Slabs slabs,
                                    int* counters) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    atomicAdd(counters + row_of(index, i, rows) * slabs.count + i / slabs.length, 1);
}

// Replaces each counter by the sum of the counters before it. Runs as one block.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int* counters, int64_t n) {
  __shared__ int thread_sums[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t share = (n + kScanThreads - 1) / kScanThreads, begin = thread * share;
  const int64_t end = begin + share < n ? begin + share : n;
  int total = 0;
  for (int64_t i = begin; i < end; ++i) total += counters[i];
  thread_sums[thread] = total;
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    __syncthreads();
    const int before = thread >= distance ? thread_sums[thread - distance] : 0;
    __syncthreads();
    thread_sums[thread] += before;
  }
  int sum = thread_sums[thread] - total;
  for (int64_t i = begin; i < end; ++i) {
    const int own = counters[i];
    counters[i] = sum;
    sum += own;
  }
}

// Writes to starts (rows + 1) the index of the first token of each row in the sorted order.
__global__ void starts_kernel(const int* counters, int* starts, int64_t rows, Slabs slabs) {
  for (int64_t row = first_element(); row <= rows; row += element_stride())
    starts[row] = counters[row * slabs.count];
}

// Writes the token indices to `order`, sorted by table row. One warp handles one slab, 32 tokens at a time.
// The counter of a row and a slab holds the next free index of `order`.
__global__ void place_kernel(const int64_t* index, int64_t count, int rows, Slabs slabs, int* counters,
                             int* order) {
  const int64_t begin = blockIdx.x * slabs.length;
  const int64_t end = begin + slabs.length < count ? begin + slabs.length : count;
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t first = begin; first < end; first += kWarpSize) {
    const int64_t i = first + lane;
    const int row = i < end ? row_of(index, i, rows) : -1;
    int before = 0, equal = 0;
    for (int other = 0; other < kWarpSize; ++other) {
      const bool same = __shfl_sync(kAllLanes, row, other) == row;
      equal += same;
      before += same && other < lane;
    }
    int* const counter = counters + std::max(row, 0) * slabs.count + blockIdx.x;
    const int slot = *counter + before;
    __syncwarp();  // all lanes have read the counter
    if (row >= 0) {
      order[slot] = static_cast<int>(i);
      if (before == 0) *counter = slot + equal;
    }
    __syncwarp();
  }
}

// Sums the gradients of the tokens of a chunk. Sums of rows that are complete within the chunk are added to
// the table. Other sums are written to partial (chunks, 2, dim): index 0 for the row that began in an earlier
// chunk, and index 1 for the row that continues in the next chunk.
template <class T>
__global__ void chunk_kernel(const T* __restrict__ g, const int64_t* __restrict__ index,
                             const int* __restrict__ order, const int* __restrict__ starts, int rows,
                             T* table, T* partial, int64_t dim) {
  const int lane = static_cast<int>(threadIdx.x), counted = starts[rows];
  const int64_t chunk = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * kWarpSize * kColumns + lane;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < counted ? begin + kChunk : counted;
  T sums[kColumns] = {};
  for (int64_t base = begin; base < end; base += kWarpSize) {
    const int here = end - base < kWarpSize ? static_cast<int>(end - base) : kWarpSize;
    const int my_token = lane < here ? order[base + lane] : 0;
    const int my_row = lane < here ? static_cast<int>(index[my_token]) : -1;
    const int next = __shfl_down_sync(kAllLanes, my_row, 1);
    const bool continues = lane + 1 < kWarpSize
                               ? next == my_row
                               : base + kWarpSize < end && index[order[base + kWarpSize]] == my_row;
    const unsigned ends = __ballot_sync(kAllLanes, !continues);
    for (int first = 0; first < here; first += kTokensPerLoad) {
      T values[kTokensPerLoad][kColumns];
#pragma unroll
      for (int j = 0; j < kTokensPerLoad; ++j) {
        const int64_t token = __shfl_sync(kAllLanes, my_token, first + j);
#pragma unroll
        for (int k = 0; k < kColumns; ++k) {
          const int64_t c = column + k * kWarpSize;
          values[j][k] = first + j < here && c < dim ? g[token * dim + c] : T{0};
        }
      }
#pragma unroll
      for (int j = 0; j < kTokensPerLoad; ++j) {
        const int row = __shfl_sync(kAllLanes, my_row, first + j);
#pragma unroll
        for (int k = 0; k < kColumns; ++k) sums[k] += values[j][k];
        if (first + j >= here || !((ends >> (first + j)) & 1)) continue;
        const bool begins = starts[row] >= begin, whole = begins && starts[row + 1] <= begin + kChunk;
        T* const to = whole ? table + int64_t{row} * dim : partial + (2 * chunk + begins) * dim;
#pragma unroll
        for (int k = 0; k < kColumns; ++k) {
          const int64_t c = column + k * kWarpSize;
          if (c < dim) to[c] = whole ? to[c] + sums[k] : sums[k];
          sums[k] = 0;
        }
      }
    }
  }
}

// Adds the partial sums of rows whose tokens are in several chunks. Runs one block of 32 x 8 threads per row
// and 32 columns.
template <class T>
__global__ void collect_kernel(const T* __restrict__ partial, const int* starts, T* table, int64_t dim) {
  __shared__ T group_values[kTableRowsPerBlock][kWarpSize];
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kWarpSize + threadIdx.x;
  const int64_t begin = starts[row], end = starts[row + 1];
  const int64_t first = begin / kChunk, last = (end - 1) / kChunk;
  if (begin == end || first == last) return;  // the condition is equal for all threads of the block
  T sum = 0;
  if (column < dim)
    for (int64_t chunk = first + threadIdx.y; chunk <= last; chunk += kTableRowsPerBlock)
      sum += partial[(2 * chunk + (chunk == first)) * dim + column];
  group_values[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= dim) return;
  for (int group = 1; group < kTableRowsPerBlock; ++group) sum += group_values[group][threadIdx.x];
  table[row * dim + column] += sum;
}

}  // namespace

template <class T>
void gather_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y) {
  const int64_t n = shape.outer * shape.count * shape.inner;
  launch(gather_kernel<T>, over_elements(n), shape, x, index, y, n);
}

template <class T>
void scatter_add_middle(Backend, const IndexShape& shape, const T* x, const int64_t* index, T* y) {
  launch(scatter_add_kernel<T>, over_elements(shape.outer * shape.inner), shape, x, index, y);
}

template <class T>
void gather_rows(Backend, const T* table, int64_t rows, const int64_t* index, T* y, int64_t count,
                 int64_t dim) {
  launch(gather_rows_kernel<T>, over_short_rows(count), table, rows, index, y, count, dim);
}

template <class T>
void scatter_add_rows(Backend, const T* g, const int64_t* index, T* table, int64_t rows, int64_t count,
                      int64_t dim) {
  if (count == 0 || rows == 0 || dim == 0) return;
  check(count < INT32_MAX && rows < INT32_MAX, "scatter_add_rows", count, " indices or ", rows,
        " rows exceed the maximum of ", INT32_MAX - 1);
  const Slabs slabs = slabs_of(count, rows);
  const int64_t counters_size = (rows + 1) * slabs.count, chunks = (count + kChunk - 1) / kChunk;
  const Scratch<int> counters(counters_size), starts(rows + 1), order(count);
  const Scratch<T> partial(2 * chunks * dim);
  const int table_rows = static_cast<int>(rows);
  fill_zero(counters.data(), counters_size * static_cast<int64_t>(sizeof(int)));
  launch(count_tokens_kernel, over_elements(count), index, count, table_rows, slabs, counters.data());
  launch(scan_kernel, Launch(dim3(1), dim3(kScanThreads)), counters.data(), counters_size);
  launch(starts_kernel, over_elements(rows + 1), counters.data(), starts.data(), rows, slabs);
  launch(place_kernel, over_rows(slabs.count, kWarpSize), index, count, table_rows, slabs, counters.data(),
         order.data());
  constexpr int kWarps = 4;
  constexpr int64_t kWide = kWarpSize * kColumns;
  launch(chunk_kernel<T>,
         Launch(dim3(static_cast<unsigned>((chunks + kWarps - 1) / kWarps),
                     static_cast<unsigned>((dim + kWide - 1) / kWide)),
                dim3(kWarpSize, kWarps)),
         g, index, order.data(), starts.data(), table_rows, table, partial.data(), dim);
  launch(collect_kernel<T>,
         Launch(dim3(static_cast<unsigned>(rows), static_cast<unsigned>((dim + kWarpSize - 1) / kWarpSize)),
                dim3(kWarpSize, kTableRowsPerBlock)),
         partial.data(), starts.data(), table, dim);
}

template <class T, class Index>
void embed_rows(Backend, const T* table, int64_t rows, const Index* tokens, const T* positions,
                const T* added, int64_t position, T* out, int64_t batch, int64_t value_dim,
                int64_t position_dim) {
  launch(embed_kernel<T, Index>, over_short_rows(batch), table, rows, tokens, positions, added,
         GraphStep(position), out, batch, value_dim, position_dim);
}

template <class T>
struct IndexKernels {
  inline static const Instances all{&gather_middle<T>,      &scatter_add_middle<T>,  &gather_rows<T>,
                                    &scatter_add_rows<T>,   &embed_rows<T, uint8_t>, &embed_rows<T, int32_t>,
                                    &embed_rows<T, int64_t>};
};
template struct IndexKernels<float>;
template struct IndexKernels<double>;

}  // namespace tapeformer::cuda
