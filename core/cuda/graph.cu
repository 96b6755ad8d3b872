#include "core/cuda/graph.h"

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

__global__ void advance_kernel(int64_t* step_offset, int64_t steps) {
  *step_offset += steps;
}

// A stream capture on current_device. The constructor begins the capture, and end() ends it. If the recorded
// work throws, the destructor ends the capture and returns the memory blocks of the work to the shared cache.
class Capture {
 public:
  explicit Capture(CachingAllocator& memory) : memory_(memory), stream_(get_context().stream) {
    check_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    memory_.begin_separate_cache();
  }
  ~Capture() {
    if (!ended_) memory_.adopt_cache(memory_.end_separate_cache());
    if (!ended_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) clear_error();
    if (graph_) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Ends the capture and returns the memory blocks of the recorded work. graph() is valid afterwards.
  CachingAllocator::Cache end() {
    ended_ = true;
    CachingAllocator::Cache cache = memory_.end_separate_cache();
    check_status(cudaStreamEndCapture(stream_, &graph_));
    return cache;
  }
  cudaGraph_t graph() const { return graph_; }

 private:
  CachingAllocator& memory_;
  cudaStream_t stream_;
  cudaGraph_t graph_{};
  bool ended_ = false;
};

}  // namespace

struct Graph::Impl {
  Device device;
  int64_t steps_per_launch;
  Scratch<int64_t> step_offset;  // counter that kernels read: the number of steps since the recording
  // The value of `step_offset` after all launches so far. Graph::launch() copies its argument to
  // `step_offset` only if the argument is not equal to next_offset.
  int64_t next_offset = 0;
  CachingAllocator::Cache memory;
  cudaGraphExec_t executable{};

  Impl(Device graph_device, int64_t steps) : device(graph_device), steps_per_launch(steps), step_offset(1) {
    fill_zero(step_offset.data(), sizeof(int64_t));
    // CUDA loads a kernel at the first launch of the kernel, but cannot load it during a capture. The
    // following launch loads advance_kernel before the capture, and adds 0 to the step offset.
    cuda::launch(advance_kernel, make_row_launch(1, 1), step_offset.data(), int64_t{0});
  }
  ~Impl() {
    if (executable) cudaGraphExecDestroy(executable);
    get_device_allocator(device).adopt_cache(std::move(memory));
  }
};

Graph::Graph(Device device, int64_t steps_per_launch, const std::function<void()>& work) {
  const DeviceScope scope(device, "Graph");
  check_not_capturing("records a graph");
  impl_ = std::make_unique<Impl>(device, steps_per_launch);
  Capture capture(get_device_allocator(device));
  {
    const GraphRecordingScope recording(impl_->step_offset.data());
    {
      const DeviceScope cpu_scope(kCpu, "");
      work();
    }
    cuda::launch(advance_kernel, make_row_launch(1, 1), impl_->step_offset.data(), steps_per_launch);
  }
  impl_->memory = capture.end();
  check_status(cudaGraphInstantiate(&impl_->executable, capture.graph(), 0));
}

Graph::~Graph() = default;

void Graph::launch(int64_t step_offset) {
  const DeviceScope scope(impl_->device, "Graph");
  if (step_offset != impl_->next_offset)
    copy_to_device_async(impl_->step_offset.data(), &step_offset, sizeof(step_offset));
  impl_->next_offset = step_offset + impl_->steps_per_launch;
  check_status(cudaGraphLaunch(impl_->executable, get_context().stream));
  if (are_launches_synchronous()) check_status(cudaStreamSynchronize(get_context().stream));
}

}  // namespace tapeformer::cuda
