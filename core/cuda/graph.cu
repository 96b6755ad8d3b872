#include "core/cuda/graph.h"

#include "core/cuda/kernel.h"
#include "core/cuda/probe.h"
#include "core/cuda/transfers.h"

namespace tapeformer::cuda {
namespace {

__global__ void advance_kernel(int64_t* later, int64_t steps) {
  *later += steps;
}

// Ends the capture however the recorded work ends, and keeps the memory that it took.
class Capture {
 public:
  explicit Capture(CachingAllocator& memory) : memory_(memory), stream_(context().stream) {
    check_status(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    memory_.separate();
  }
  ~Capture() {
    if (!ended_) memory_.adopt(memory_.rejoin());
    if (!ended_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) clear_error();
    if (graph_) cudaGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  CachingAllocator::Cache end() {
    ended_ = true;
    CachingAllocator::Cache cache = memory_.rejoin();
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
  Scratch<int64_t> later;  // what the launch adds to the steps of the recording
  int64_t next = 0;        // what `later` holds, as far as the host knows
  CachingAllocator::Cache memory;
  cudaGraphExec_t ready{};

  Parts(Device on, int64_t per_launch) : device(on), steps(per_launch), later(1) {
    fill_zero(later.data(), sizeof(int64_t));
    cuda::launch(advance_kernel, over_rows(1, 1), later.data(), int64_t{0});  // loads the kernel
  }
  ~Parts() {
    if (ready) cudaGraphExecDestroy(ready);
    allocator(device).adopt(std::move(memory));
  }
};

Graph::Graph(Device device, int64_t steps, const std::function<void()>& work) {
  const DeviceScope scope(device, "Graph");
  refuse_in_graph("records a graph");
  parts_ = std::make_unique<Parts>(device, steps);
  Capture capture(allocator(device));
  {
    const Recording recording(parts_->later.data());
    {
      const DeviceScope host(kCpu, "");
      work();
    }
    cuda::launch(advance_kernel, over_rows(1, 1), parts_->later.data(), steps);
  }
  parts_->memory = capture.end();
  check_status(cudaGraphInstantiate(&parts_->ready, capture.graph(), 0));
}

Graph::~Graph() = default;

void Graph::launch(int64_t later) {
  const DeviceScope scope(parts_->device, "Graph");
  if (later != parts_->next) stage(parts_->later.data(), &later, sizeof(later));
  parts_->next = later + parts_->steps;
  check_status(cudaGraphLaunch(parts_->ready, context().stream));
  if (synchronous()) check_status(cudaStreamSynchronize(context().stream));
}

}  // namespace tapeformer::cuda
