#include "core/cuda/graph.h"

#include "core/cuda/kernel.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

__global__ void advance_kernel(int64_t* step_offset, int64_t steps) {
  *step_offset += steps;
}

// Captures the launches of the stream. If the recorded work throws, the destructor ends the capture and
// returns all blocks of the work to the cache.
class Capture {
 public:
  explicit Capture(CachingAllocator& memory) : memory_(memory), stream_(context().stream) {
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

struct Graph::Parts {
  Device device;
  int64_t steps;
  Scratch<int64_t> step_offset;  // number of steps since the recording; kernels read it
  int64_t next_offset = 0;       // value of step_offset after all previous launches
  CachingAllocator::Cache memory;
  cudaGraphExec_t ready{};

  Parts(Device on, int64_t per_launch) : device(on), steps(per_launch), step_offset(1) {
    fill_zero(step_offset.data(), sizeof(int64_t));
    // Loads the kernel before the capture.
    cuda::launch(advance_kernel, over_rows(1, 1), step_offset.data(), int64_t{0});
  }
  ~Parts() {
    if (ready) cudaGraphExecDestroy(ready);
    get_device_allocator(device).adopt_cache(std::move(memory));
  }
};

Graph::Graph(Device device, int64_t steps, const std::function<void()>& work) {
  const DeviceScope scope(device, "Graph");
  refuse_in_graph("records a graph");
  parts_ = std::make_unique<Parts>(device, steps);
  Capture capture(get_device_allocator(device));
  {
    const Recording recording(parts_->step_offset.data());
    {
      const DeviceScope host(kCpu, "");
      work();
    }
    cuda::launch(advance_kernel, over_rows(1, 1), parts_->step_offset.data(), steps);
  }
  parts_->memory = capture.end();
  check_status(cudaGraphInstantiate(&parts_->ready, capture.graph(), 0));
}

Graph::~Graph() = default;

void Graph::launch(int64_t step_offset) {
  const DeviceScope scope(parts_->device, "Graph");
  if (step_offset != parts_->next_offset)
    stage(parts_->step_offset.data(), &step_offset, sizeof(step_offset));
  parts_->next_offset = step_offset + parts_->steps;
  check_status(cudaGraphLaunch(parts_->ready, context().stream));
  if (synchronous()) check_status(cudaStreamSynchronize(context().stream));
}

}  // namespace tapeformer::cuda
