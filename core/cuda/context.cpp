#include "core/cuda/context.h"

#include <cstring>
#include <memory>
#include <type_traits>

#include "core/cuda/devices.h"

namespace tapeformer::cuda {
namespace {

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
  if (const std::string problem = find_device_problem(index); !problem.empty())
    throw DeviceError(concat_text("device cuda:", index, " is not available: ", problem));
  check_status(cudaSetDevice(index));
  cudaStream_t stream{};
  check_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Owned<cudaStream_t, DestroyStream> owned_stream(stream);
  cublasHandle_t blas{};
  check_status(cublasCreate(&blas));
  Owned<cublasHandle_t, DestroyBlas> owned_blas(blas);
  check_status(cublasSetStream(blas, stream));
  // In the default mode, cuBLAS may round partial sums to bfloat16 if the result is bfloat16.
  check_status(cublasSetMathMode(blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  cublasLtHandle_t blas_lt{};
  check_status(cublasLtCreate(&blas_lt));
  Owned<cublasLtHandle_t, DestroyBlasLt> owned_blas_lt(blas_lt);
  void* workspace = nullptr;
  if (!is_emulated()) {
    check_status(cudaMalloc(&workspace, kBlasWorkspaceBytes));
    check_status(cublasSetWorkspace(blas, workspace, kBlasWorkspaceBytes));
  }
  constexpr size_t kArrivalBytes = kArrivalCounterCount * sizeof(unsigned);
  void* arrival_counters = nullptr;
  check_status(cudaMalloc(&arrival_counters, kArrivalBytes));
  check_status(cudaMemsetAsync(arrival_counters, 0, kArrivalBytes, stream));
  owned_stream.release();
  owned_blas.release();
  owned_blas_lt.release();
  return new Context{index, stream, blas, blas_lt, workspace, static_cast<unsigned*>(arrival_counters)};
}

constinit thread_local Context* active = nullptr;  // context of CUDA's current device, if it is known

Context& mutable_context() {
  static auto& contexts = *new PerDevice<Context>;
  if (current_device.is_cpu())
    throw DeviceError("code of the CUDA backend was called outside of run_on_device for a CUDA device");
  const int index = current_device.index;
  if (active && active->device == index) return *active;
  Context& found = contexts.get(index, [&] { return make_context(index); });
  check_status(cudaSetDevice(index));
  active = &found;
  return found;
}

}  // namespace

const Context& get_context() {
  return mutable_context();
}

void forget_current_device() {
  active = nullptr;
}

void check_not_capturing(const char* action) {
  if (!get_context().step_offset) return;
  throw CudaGraphError(concat_text(*current_op ? current_op : "a step", ": it ", action,
                                   ", which a CUDA graph cannot repeat"));
}

GraphRecordingScope::GraphRecordingScope(const int64_t* step_offset) {
  mutable_context().step_offset = step_offset;
}
GraphRecordingScope::~GraphRecordingScope() {
  mutable_context().step_offset = nullptr;
}

Precision get_precision(Device device) {
  const DeviceScope scope(device);
  return get_context().precision;
}
void set_precision(Device device, Precision precision) {
  const DeviceScope scope(device);
  mutable_context().precision = precision;
}

}  // namespace tapeformer::cuda
