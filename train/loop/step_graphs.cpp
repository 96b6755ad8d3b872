#include "train/loop/step_graphs.h"

#include "core/allocator.h"
#include "core/cuda/graph.h"

namespace tapeformer {
namespace {

constexpr size_t kMaxGraphs = 4;  // maximum number of graphs, each of which holds the memory of a step

}  // namespace

StepGraphs::StepGraphs(Device device, int64_t draws) : device_(device), draws_(draws) {}
StepGraphs::~StepGraphs() = default;

void StepGraphs::capture(Entry& entry, int64_t step, const std::function<StepOutputs()>& work) {
  if constexpr (kHasCuda) {
    device_allocator(device_).trim();  // frees cached blocks, because the graph allocates its own memory
    entry.first = step;
    try {
      entry.graph = std::make_shared<cuda::Graph>(device_, draws_, [&] { entry.outputs = work(); });
    } catch (const GraphError& error) {
      throw DeviceError(std::string(error.what()) + "; set run.cuda_graphs = false");
    }
    ++captured_;
  }
}

StepOutputs StepGraphs::run(const StepLayout& layout, int64_t step,
                            const std::function<StepOutputs()>& work) {
  if (entries_.size() >= kMaxGraphs && !entries_.contains(layout)) entries_.clear();
  Entry& entry = entries_[layout];
  if (!entry.seen) {
    entry.seen = true;
    return work();
  }
  if (!entry.graph) capture(entry, step, work);
  if constexpr (kHasCuda) entry.graph->launch((step - entry.first) * draws_);
  ++replayed_;
  return entry.outputs;
}

}  // namespace tapeformer
