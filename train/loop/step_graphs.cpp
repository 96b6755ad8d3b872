#include "train/loop/step_graphs.h"

#include "core/allocator.h"
#include "core/cuda/graph.h"

namespace tapeformer {
namespace {

// Maximum number of CUDA graphs that are kept. Each graph reserves the memory of a training step.
constexpr size_t kMaxGraphs = 4;

}  // namespace

StepGraphs::StepGraphs(Device device, int64_t micro_batch_count)
    : device_(device), micro_batch_count_(micro_batch_count) {}
StepGraphs::~StepGraphs() = default;

void StepGraphs::capture(Entry& entry, int64_t step, const std::function<StepOutputs()>& launch_step) {
  if constexpr (kHasCuda) {
    // The capture of a graph allocates new memory and cannot use cached blocks. trim() returns the cached
    // blocks to the system, so that the capture can allocate the memory of these blocks.
    get_device_allocator(device_).trim();
    entry.captured_step = step;
    try {
      entry.graph =
          std::make_shared<cuda::Graph>(device_, micro_batch_count_, [&] { entry.outputs = launch_step(); });
    } catch (const CudaGraphError& error) {
      throw DeviceError(std::string(error.what()) + "; set run.cuda_graphs = false");
    }
    ++captured_step_count_;
  }
}

void StepGraphs::move_to_device(StepBatch& batch, int64_t micro_batch, const BatchLayout& layout) {
  Batch& input = inputs_[{micro_batch, layout}];
  const auto copy = [&](const Tensor& from, Tensor& to) {
    if (!from.defined()) return;
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), device_);
    to.copy_from(from);
  };
  copy(batch.examples.tokens, input.tokens);
  copy(batch.examples.mask, input.mask);
  copy(batch.examples.token_targets, input.token_targets);
  batch.examples.tokens = input.tokens;
  batch.examples.mask = input.mask;
  batch.examples.token_targets = input.token_targets;
}

StepOutputs StepGraphs::run(const StepLayout& layout, int64_t step,
                            const std::function<StepOutputs()>& launch_step) {
  if (entries_.size() >= kMaxGraphs && !entries_.contains(layout)) entries_.clear();
  Entry& entry = entries_[layout];
  if (!entry.has_run) {
    entry.has_run = true;
    return launch_step();
  }
  if (!entry.graph) capture(entry, step, launch_step);
  if constexpr (kHasCuda) entry.graph->launch((step - entry.captured_step) * micro_batch_count_);
  ++replayed_step_count_;
  return entry.outputs;
}

}  // namespace tapeformer
