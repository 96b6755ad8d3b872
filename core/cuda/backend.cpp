#include "core/cuda/backend.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <type_traits>

#include "core/cuda/context.h"
#include "core/cuda/launch.h"
#include "core/cuda/probe.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

constexpr int kMostDevices = 64;

std::string place_of(const std::source_location& where) {
  return concat_text(where.file_name(), ":", where.line());
}

class DeviceMemory final : public SystemMemory {
 public:
  explicit DeviceMemory(int device) : device_{DeviceType::cuda, device} {}
  void* allocate(int64_t bytes) override {
    const DeviceScope scope(device_);
    context();
    void* block = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // a graph that is recorded gets memory too
    check_status(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t status = cudaMalloc(&block, static_cast<size_t>(bytes));
    check_status(cudaThreadExchangeStreamCaptureMode(&mode));
    if (status == cudaErrorMemoryAllocation) {
      clear_error();
      return nullptr;
    }
    check_status(status);
    return block;
  }
  void release(void* block) noexcept override { cudaFree(block); }  // waits for the work that uses it
  bool on_host() const override { return emulated(); }

 private:
  Device device_;
};

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyBlas {
  void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
};
struct DestroyBlasLt {
  void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
};
template <class Handle, class Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

Context* make_context(int index) {
  if (const std::string problem = problem_with(index); !problem.empty())
    throw DeviceError(concat_text("device cuda:", index, " is not available: ", problem));
  check_status(cudaSetDevice(index));
  cudaStream_t stream{};
  check_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Owned<cudaStream_t, DestroyStream> owned_stream(stream);
  cublasHandle_t blas{};
  check_status(cublasCreate(&blas));
  Owned<cublasHandle_t, DestroyBlas> owned_blas(blas);
  check_status(cublasSetStream(blas, stream));
  // Else parts of a long sum are rounded to bfloat16 before they are added, where the result is.
  check_status(cublasSetMathMode(blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  cublasLtHandle_t blas_lt{};
  check_status(cublasLtCreate(&blas_lt));
  Owned<cublasLtHandle_t, DestroyBlasLt> owned_blas_lt(blas_lt);
  void* workspace = nullptr;
  if (!emulated()) {
    check_status(cudaMalloc(&workspace, kBlasWorkspace));
    check_status(cublasSetWorkspace(blas, workspace, kBlasWorkspace));
  }
  owned_stream.release();
  owned_blas.release();
  owned_blas_lt.release();
  return new Context{index, stream, blas, blas_lt, workspace, Precision::float32};
}

template <class T>
struct PerDevice {
  std::mutex mutex;
  T* made[kMostDevices] = {};
};

}  // namespace

void check_status(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  clear_error();
  const std::string text = concat_text("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                                       ") at ", place_of(where));
  if (status == cudaErrorMemoryAllocation)
    throw OutOfMemory("out of memory: " + text + "; lower data.batch_size or the model's size");
  throw DeviceError(text);
}

void check_status(cublasStatus_t status, std::source_location where) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(concat_text("cuBLAS: ", cublasGetStatusString(status), " at ", place_of(where)));
}

namespace {

Context& own_context() {
  static auto& contexts = *new PerDevice<Context>;
  static thread_local Context* active = nullptr;
  if (current_device.is_cpu())
    throw DeviceError("code of the CUDA backend was called outside of on_device for a CUDA device");
  const int index = current_device.index;
  if (active && active->device == index) return *active;
  if (index >= kMostDevices) throw DeviceError(concat_text("device cuda:", index, " is not available"));
  const std::scoped_lock lock(contexts.mutex);
  Context*& made = contexts.made[index];
  if (!made) made = make_context(index);
  check_status(cudaSetDevice(index));
  active = made;
  return *active;
}

}  // namespace

const Context& context() {
  return own_context();
}

void refuse_in_graph(const char* what) {
  if (!context().later) return;
  throw DeviceError(
      concat_text(*current_op ? current_op : "a step", ": it ", what,
                  ", which a graph cannot repeat; run.cuda_graphs = false does without graphs"));
}

void detail::check_limits(const Launch& launch) {
  constexpr unsigned kWidest = 2147483647, kMostAcross = 65535, kMostThreads = 1024;
  const dim3 &grid = launch.grid, &block = launch.block;
  check(grid.x <= kWidest && grid.y <= kMostAcross && grid.z <= kMostAcross &&
            uint64_t{block.x} * block.y * block.z <= kMostThreads,
        *current_op ? current_op : "launch", "a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
        " blocks of ", block.x, " x ", block.y, " x ", block.z, " threads is more than a device has, at ",
        launch.where.file_name(), ":", launch.where.line());
}

Recording::Recording(const int64_t* later) {
  own_context().later = later;
}
Recording::~Recording() {
  own_context().later = nullptr;
}

Precision precision(Device device) {
  const DeviceScope scope(device);
  return own_context().precision;
}
void set_precision(Device device, Precision precision) {
  const DeviceScope scope(device);
  own_context().precision = precision;
}

CachingAllocator& allocator(int index) {
  static auto& allocators = *new PerDevice<CachingAllocator>;
  if (index < 0 || index >= kMostDevices)
    throw DeviceError(concat_text("device cuda:", index, " is not available"));
  const std::scoped_lock lock(allocators.mutex);
  CachingAllocator*& made = allocators.made[index];
  if (!made) {
    const DeviceScope scope({DeviceType::cuda, index});
    context();
    made = new CachingAllocator(devices().at(static_cast<size_t>(index)).memory, *new DeviceMemory(index));
  }
  return *made;
}

PinnedBuffer::PinnedBuffer(int64_t bytes) : bytes_(bytes) {
  refuse_in_graph("takes pinned memory");
  check_status(cudaMallocHost(&data_, static_cast<size_t>(bytes)));
}
PinnedBuffer::~PinnedBuffer() {
  cudaFreeHost(data_);
}

std::vector<DeviceInfo> devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    clear_error();
    return {};
  }
  std::vector<DeviceInfo> list;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    check_status(cudaGetDeviceProperties(&properties, index));
    list.push_back({properties.name, properties.major, properties.minor,
                    static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return list;
}

std::string problem_with(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) clear_error();
  if (status == cudaErrorInsufficientDriver)
    return "no driver for CUDA " + toolkit_version() + " is installed (found: " + driver_version() + ")";
  if (status != cudaSuccess && status != cudaErrorNoDevice) return cudaGetErrorString(status);
  if (count == 0) return "this machine has no CUDA device";
  if (index >= count)
    return concat_text("this machine has ", count, " CUDA device", count > 1 ? "s" : "", ", cuda:0",
                       count > 1 ? concat_text(" to cuda:", count - 1) : "");
  try {
    if (kernels_run_on(index)) return "";
  } catch (const DeviceError& error) {  // in use by others, for one
    return error.what();
  }
  cudaDeviceProp properties;
  check_status(cudaGetDeviceProperties(&properties, index));
  std::string architectures;
  for (const std::string& name : compiled_architectures()) architectures += " " + name;
  return concat_text(properties.name, " has compute capability ", properties.major, ".", properties.minor,
                     ", and the kernels are compiled for", architectures,
                     "; build again with -DTAPEFORMER_CUDA_ARCHITECTURES=", properties.major,
                     properties.minor);
}

std::vector<std::string> compiled_architectures() {
  std::vector<std::string> list;
  std::istringstream words(TAPEFORMER_CUDA_ARCHITECTURES);
  for (std::string word; words >> word;) list.push_back(word);
  return list;
}

namespace {

std::atomic<int64_t> waits{0};

void wait_for(cudaStream_t stream) {
  refuse_in_graph("waits for the device");
  ++waits;
  check_status(cudaStreamSynchronize(stream));
}

}  // namespace

int64_t host_waits() {
  return waits;
}

void synchronize(Device device) {
  const DeviceScope scope(device);
  wait_for(context().stream);
}

void fill_zero(void* data, int64_t bytes) {
  if (bytes > 0) check_status(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), context().stream));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes) {
  if (bytes == 0) return;
  // The stream of the source, so that its values are ready; other devices have to wait for it.
  const DeviceScope scope(from_device.is_cpu() ? to_device : from_device);
  const cudaStream_t stream = context().stream;
  if (from_device.is_cpu()) refuse_in_graph("copies from the host's memory");
  if (to_device.is_cpu()) refuse_in_graph("copies to the host's memory");
  if (from_device.is_cpu()) {
    // Never straight from pageable memory: CUDA may read that after the call has returned.
    for (int64_t done = 0; done < bytes; done += kMostStaged)
      stage(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
            std::min(bytes - done, kMostStaged));
    return;
  }
  if (!from_device.is_cpu() && !to_device.is_cpu() && from_device != to_device) synchronize(to_device);
  check_status(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream));
  if (to_device.is_cpu() || (!from_device.is_cpu() && from_device != to_device)) wait_for(stream);
}

}  // namespace tapeformer::cuda
