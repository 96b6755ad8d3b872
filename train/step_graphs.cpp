#include "train/step_graphs.h"

#include "core/allocator.h"
#include "core/cuda/graph.h"

namespace tapeformer {
namespace {

constexpr size_t kMostGraphs = 4;  // each keeps the memory of a step

}  // namespace

StepGraphs::StepGraphs(Device device, int64_t draws) : device_(device), draws_(draws) {}
StepGraphs::~StepGraphs() = default;

void StepGraphs::record(Kept& kept, int64_t step, const std::function<StepOutputs()>& work) {
  if constexpr (kHasCuda) {
    allocator(device_).trim();  // the graph gets memory of its own
    kept.first = step;
    try {
      kept.graph = std::make_shared<cuda::Graph>(device_, draws_, [&] { kept.outputs = work(); });
    } catch (const GraphError& error) {
      throw DeviceError(std::string(error.what()) + "; set run.cuda_graphs = false");
    }
    ++recorded_;
  }
}

StepOutputs StepGraphs::run(const std::string& layout, int64_t step,
                            const std::function<StepOutputs()>& work) {
  if (kept_.size() >= kMostGraphs && !kept_.contains(layout)) kept_.clear();
  Kept& kept = kept_[layout];
  if (!kept.seen) {
    kept.seen = true;
    return work();
  }
  if (!kept.graph) record(kept, step, work);
  if constexpr (kHasCuda) kept.graph->launch((step - kept.first) * draws_);
  ++repeated_;
  return kept.outputs;
}

}  // namespace tapeformer
