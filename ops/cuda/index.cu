#include "ops/kernels/index.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

template <class T>
__device__ T not_a_number() {
  return static_cast<T>(NAN);
}

// Computes gather_middle_dim(). An index out of range gives NaN.
template <class T>
__global__ void gather_kernel(GatherShape s, const T* __restrict__ x, const int64_t* __restrict__ index, T* y,
                              int64_t n) {
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    const int64_t row = i / s.inner_size, outer = row / s.index_size, source = index[i];
    const bool is_valid = source >= 0 && source < s.size;
    y[i] =
        is_valid ? x[(outer * s.size + source) * s.inner_size + i - row * s.inner_size] : not_a_number<T>();
  }
}

// Computes scatter_add_middle_dim(). A column consists of the elements of a tensor that have the same outer
// and inner index. Each thread computes one column of `y`, and adds the elements of `x` in the order of
// `index`, so the result is deterministic. For an index that is out of range, NaN is added to element 0 of
// the column.
template <class T>
__global__ void scatter_add_kernel(GatherShape s, const T* __restrict__ x, const int64_t* __restrict__ index,
                                   T* y) {
  const int64_t columns = s.outer_size * s.inner_size;
  for (int64_t column = first_element(); column < columns; column += element_stride()) {
    const int64_t outer = column / s.inner_size, inner = column - outer * s.inner_size;
    for (int64_t c = 0; c < s.index_size; ++c) {
      const int64_t from = (outer * s.index_size + c) * s.inner_size + inner, target = index[from];
      const bool is_valid = target >= 0 && target < s.size;
      y[(outer * s.size + (is_valid ? target : 0)) * s.inner_size + inner] +=
          is_valid ? x[from] : not_a_number<T>();
    }
  }
}

constexpr int kTableRowsPerBlock = 8;

// Returns the launch configuration for kernels in which each warp copies one row at a time. Each thread block
// has 32 x 8 threads. A warp processes the rows first_row(), first_row() + row_stride(), and so on.
LaunchConfig over_short_rows(int64_t rows, SourceLocation where = SourceLocation::current()) {
  const int64_t blocks = std::min<int64_t>((rows + kTableRowsPerBlock - 1) / kTableRowsPerBlock, 1 << 16);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kWarpSize, kTableRowsPerBlock), 0, where};
}
__device__ int64_t first_row() {
  return int64_t{blockIdx.x} * kTableRowsPerBlock + threadIdx.y;
}
__device__ int64_t row_stride() {
  return int64_t{gridDim.x} * kTableRowsPerBlock;
}

// Copies row `row` of `table` (rows, dim) to `to`. If the row is out of range, fills `to` with NaN. All lanes
// of the warp call the function.
template <class T>
__device__ void copy_row(const T* __restrict__ table, int64_t rows, int64_t row, T* to, int64_t dim) {
  const bool is_valid = row >= 0 && row < rows;
  for (int64_t i = threadIdx.x; i < dim; i += kWarpSize)
    to[i] = is_valid ? table[row * dim + i] : not_a_number<T>();
}

template <class T>
__global__ void gather_rows_kernel(const T* table, int64_t rows, const int64_t* index, T* y, int64_t count,
                                   int64_t dim) {
  for (int64_t row = first_row(); row < count; row += row_stride())
    copy_row(table, rows, index[row], y + row * dim, dim);
}

// Computes embed_rows(). A warp writes one row of `out` at a time.
template <class T, class Index>
__global__ void embed_kernel(const T* table, int64_t rows, const Index* tokens, const T* positions,
                             const T* added, GraphStep step, T* out, int64_t batch, int64_t value_dim,
                             int64_t position_dim) {
  const int64_t width = value_dim + position_dim, position = step.current_step();
  for (int64_t b = first_row(); b < batch; b += row_stride()) {
    T* const to = out + b * width;
    copy_row(table, rows, static_cast<int64_t>(tokens[b]), to, value_dim);
    copy_row(positions + position * position_dim, 1, 0, to + value_dim, position_dim);
    if (!added) continue;
    __syncwarp();  // waits until all lanes have written the row
    for (int64_t i = threadIdx.x % kWarpSize; i < width; i += kWarpSize) to[i] += added[position * width + i];
  }
}

// The following kernels compute scatter_add_rows(), the gradient of an embedding:
// 1. A stable counting sort orders the tokens by table row. Each warp sorts one slab of consecutive tokens.
// 2. Each warp sums the gradients of one chunk of sorted tokens. All chunks have the same length, so the work
//    of a warp does not depend on the number of tokens per row.
// 3. If the tokens of a row are in several chunks, the last kernel adds the partial sums of these chunks.
constexpr int kTokensPerChunk = 128;
constexpr int kColumnsPerLane = 4;
constexpr int kTokensPerLoad = 4;  // number of tokens whose gradients a lane loads at a time; a divisor of 32
constexpr int kMinTokensPerSlab = 1024;
constexpr int64_t kMaxCounters = 1 << 19;  // maximum of (rows + 1) * Slabs::count if there are several slabs
constexpr int kScanThreads = 1024;         // number of threads of scan_kernel, which runs as one block

struct Slabs {
  int64_t count, length;  // length: tokens per slab
};
Slabs choose_slabs(int64_t count, int64_t rows) {
  const int64_t max_slabs = std::max<int64_t>(kMaxCounters / (rows + 1), 1);
  const int64_t slabs = std::min(max_slabs, (count + kMinTokensPerSlab - 1) / kMinTokensPerSlab);
  return {slabs, (count + slabs - 1) / slabs};
}

// Returns the table row of token i, or `rows` if the row is out of range.
__device__ int find_row(const int64_t* index, int64_t i, int rows) {
  const int64_t row = index[i];
  return row >= 0 && row < rows ? static_cast<int>(row) : rows;
}

// Counts the tokens of each table row in each slab, and adds the counts to `counters`, which has the shape
// (rows + 1, slabs.count). The last row of `counters` counts the tokens whose table row is out of range.
__global__ void count_tokens_kernel(const int64_t* index, int64_t count, int rows, Slabs slabs,
                                    int* counters) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    atomicAdd(counters + find_row(index, i, rows) * slabs.count + i / slabs.length, 1);
}

// Replaces each of the n counters by the sum of the counters before it. Runs as one block.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int* counters, int64_t n) {
  __shared__ int thread_sums[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t counters_per_thread = (n + kScanThreads - 1) / kScanThreads,
                begin = thread * counters_per_thread;
  const int64_t end = begin + counters_per_thread < n ? begin + counters_per_thread : n;
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
    const int counter = counters[i];
    counters[i] = sum;
    sum += counter;
  }
}

// Sets row_begins[row] to the index of the first token of table row `row` in the sorted order. This index is
// the number of tokens of all table rows before `row`. row_begins[rows] is the number of tokens with a valid
// table row. `counters` is the result of scan_kernel.
__global__ void row_begins_kernel(const int* counters, int* row_begins, int64_t rows, Slabs slabs) {
  for (int64_t row = first_element(); row <= rows; row += element_stride())
    row_begins[row] = counters[row * slabs.count];
}

// Writes the indices of the tokens, sorted by table row, to `order`, which has the shape (count,). Each warp
// processes one slab of tokens. For each table row and slab, `counters` contains the next free index in
// `order`.
__global__ void sort_tokens_kernel(const int64_t* index, int64_t count, int rows, Slabs slabs, int* counters,
                                   int* order) {
  const int64_t begin = blockIdx.x * slabs.length;
  const int64_t end = begin + slabs.length < count ? begin + slabs.length : count;
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t first = begin; first < end; first += kWarpSize) {
    const int64_t i = first + lane;
    const int row = i < end ? find_row(index, i, rows) : -1;
    int before = 0, equal = 0;
    for (int other = 0; other < kWarpSize; ++other) {
      const bool is_same_row = __shfl_sync(kAllLanes, row, other) == row;
      equal += is_same_row;
      before += is_same_row && other < lane;
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

// Sums the gradients of the tokens of each table row. Each warp processes one chunk of sorted tokens. If the
// chunk contains all tokens of a table row, the sum for the row is added to `table`. Otherwise the sum is
// written to `partial_sums`, which has the shape (chunks, 2, dim): to partial_sums[chunk][1] if the tokens of
// the row begin in this chunk, and to partial_sums[chunk][0] if they begin in an earlier chunk.
template <class T>
__global__ void sum_chunks_kernel(const T* __restrict__ g, const int64_t* __restrict__ index,
                                  const int* __restrict__ order, const int* __restrict__ row_begins, int rows,
                                  T* table, T* partial_sums, int64_t dim) {
  const int lane = static_cast<int>(threadIdx.x), valid_count = row_begins[rows];
  const int64_t chunk = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = int64_t{blockIdx.y} * kWarpSize * kColumnsPerLane + lane;
  const int64_t begin = chunk * kTokensPerChunk;
  const int64_t end = begin + kTokensPerChunk < valid_count ? begin + kTokensPerChunk : valid_count;
  T sums[kColumnsPerLane] = {};
  for (int64_t base = begin; base < end; base += kWarpSize) {
    const int token_count = end - base < kWarpSize ? static_cast<int>(end - base) : kWarpSize;
    const int lane_token = lane < token_count ? order[base + lane] : 0;
    const int lane_row = lane < token_count ? static_cast<int>(index[lane_token]) : -1;
    const int next = __shfl_down_sync(kAllLanes, lane_row, 1);
    const bool is_continued = lane + 1 < kWarpSize
                                  ? next == lane_row
                                  : base + kWarpSize < end && index[order[base + kWarpSize]] == lane_row;
    const unsigned end_bits = __ballot_sync(kAllLanes, !is_continued);
    for (int first = 0; first < token_count; first += kTokensPerLoad) {
      T values[kTokensPerLoad][kColumnsPerLane];
#pragma unroll
      for (int j = 0; j < kTokensPerLoad; ++j) {
        const int64_t token = __shfl_sync(kAllLanes, lane_token, first + j);
#pragma unroll
        for (int k = 0; k < kColumnsPerLane; ++k) {
          const int64_t c = column + k * kWarpSize;
          values[j][k] = first + j < token_count && c < dim ? g[token * dim + c] : T{0};
        }
      }
#pragma unroll
      for (int j = 0; j < kTokensPerLoad; ++j) {
        const int row = __shfl_sync(kAllLanes, lane_row, first + j);
#pragma unroll
        for (int k = 0; k < kColumnsPerLane; ++k) sums[k] += values[j][k];
        if (first + j >= token_count || !((end_bits >> (first + j)) & 1)) continue;
        const bool has_begun_here = row_begins[row] >= begin,
                   is_complete = has_begun_here && row_begins[row + 1] <= begin + kTokensPerChunk;
        T* const to =
            is_complete ? table + int64_t{row} * dim : partial_sums + (2 * chunk + has_begun_here) * dim;
#pragma unroll
        for (int k = 0; k < kColumnsPerLane; ++k) {
          const int64_t c = column + k * kWarpSize;
          if (c < dim) to[c] = is_complete ? to[c] + sums[k] : sums[k];
          sums[k] = 0;
        }
      }
    }
  }
}

// Completes the table rows whose tokens are in several chunks: adds the partial sums of each such row to
// `table`. Each thread block of 32 x 8 threads processes 32 columns of one table row.
template <class T>
__global__ void add_partial_rows_kernel(const T* __restrict__ partial_sums, const int* row_begins, T* table,
                                        int64_t dim) {
  __shared__ T group_values[kTableRowsPerBlock][kWarpSize];
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kWarpSize + threadIdx.x;
  const int64_t begin = row_begins[row], end = row_begins[row + 1];
  const int64_t first = begin / kTokensPerChunk, last = (end - 1) / kTokensPerChunk;
  if (begin == end || first == last) return;  // the condition is the same for all threads of the block
  T sum = 0;
  if (column < dim)
    for (int64_t chunk = first + threadIdx.y; chunk <= last; chunk += kTableRowsPerBlock)
      sum += partial_sums[(2 * chunk + (chunk == first)) * dim + column];
  group_values[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= dim) return;
  for (int group = 1; group < kTableRowsPerBlock; ++group) sum += group_values[group][threadIdx.x];
  table[row * dim + column] += sum;
}

}  // namespace

template <class T>
void gather_middle_dim(Backend, const GatherShape& shape, const T* x, const int64_t* index, T* y) {
  const int64_t n = shape.outer_size * shape.index_size * shape.inner_size;
  launch(gather_kernel<T>, make_elementwise_launch(n), shape, x, index, y, n);
}

template <class T>
void scatter_add_middle_dim(Backend, const GatherShape& shape, const T* x, const int64_t* index, T* y) {
  launch(scatter_add_kernel<T>, make_elementwise_launch(shape.outer_size * shape.inner_size), shape, x, index,
         y);
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
  const Slabs slabs = choose_slabs(count, rows);
  const int64_t counters_size = (rows + 1) * slabs.count,
                chunks = (count + kTokensPerChunk - 1) / kTokensPerChunk;
  const Scratch<int> counters(counters_size), row_begins(rows + 1), order(count);
  const Scratch<T> partial_sums(2 * chunks * dim);
  const int table_rows = static_cast<int>(rows);
  fill_zero(counters.data(), counters_size * static_cast<int64_t>(sizeof(int)));
  launch(count_tokens_kernel, make_elementwise_launch(count), index, count, table_rows, slabs,
         counters.data());
  launch(scan_kernel, LaunchConfig(dim3(1), dim3(kScanThreads)), counters.data(), counters_size);
  launch(row_begins_kernel, make_elementwise_launch(rows + 1), counters.data(), row_begins.data(), rows,
         slabs);
  launch(sort_tokens_kernel, make_row_launch(slabs.count, kWarpSize), index, count, table_rows, slabs,
         counters.data(), order.data());
  constexpr int kWarpsPerBlock = 4;
  constexpr int64_t kColumnsPerBlock = kWarpSize * kColumnsPerLane;
  launch(sum_chunks_kernel<T>,
         LaunchConfig(dim3(static_cast<unsigned>((chunks + kWarpsPerBlock - 1) / kWarpsPerBlock),
                           static_cast<unsigned>((dim + kColumnsPerBlock - 1) / kColumnsPerBlock)),
                      dim3(kWarpSize, kWarpsPerBlock)),
         g, index, order.data(), row_begins.data(), table_rows, table, partial_sums.data(), dim);
  launch(add_partial_rows_kernel<T>,
         LaunchConfig(
             dim3(static_cast<unsigned>(rows), static_cast<unsigned>((dim + kWarpSize - 1) / kWarpSize)),
             dim3(kWarpSize, kTableRowsPerBlock)),
         partial_sums.data(), row_begins.data(), table, dim);
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
  inline static const FunctionInstances all{
      &gather_middle_dim<T>,   &scatter_add_middle_dim<T>, &gather_rows<T>,        &scatter_add_rows<T>,
      &embed_rows<T, uint8_t>, &embed_rows<T, int32_t>,    &embed_rows<T, int64_t>};
};
template struct IndexKernels<float>;
template struct IndexKernels<double>;

}  // namespace tapeformer::cuda
