#include "models/layers/segment_memory.h"

#include <algorithm>

#include "ops/view.h"

namespace tapeformer {

void SegmentMemory::add_layer(const std::string& name, int64_t tokens, int64_t width) {
  if (tokens == 0) return;
  const auto zeros = [&] { return Tensor::zeros({batch_, tokens, width}, like_.dtype(), like_.device()); };
  layers_[name] = {zeros(), zeros()};
}

void SegmentMemory::start_segment(int64_t preceding) {
  preceding_ = preceding;
  for (auto& [name, layer] : layers_) {
    layer.previous.copy_from(layer.next);
    layer.is_written = false;
  }
}

Tensor SegmentMemory::read(const std::string& name, int64_t batch) const {
  const auto found = layers_.find(name);
  if (found == layers_.end() || preceding_ == 0) return {};
  const Tensor& memory = found->second.previous;
  check(batch <= batch_, "SegmentMemory", "a batch of ", batch, " segments, and memory for ", batch_);
  const int64_t tokens = memory.size(1), valid = std::min(tokens, preceding_);
  return slice(slice(memory, 0, 0, batch), 1, tokens - valid, tokens);
}

void SegmentMemory::write(const std::string& name, const Tensor& x) {
  const auto found = layers_.find(name);
  if (found == layers_.end() || found->second.is_written) return;
  Layer& layer = found->second;
  layer.is_written = true;
  const int64_t batch = x.size(0), length = x.size(1), tokens = layer.next.size(1);
  const int64_t added = std::min(length, tokens), kept = tokens - added;
  const Tensor next = slice(layer.next, 0, 0, batch), previous = slice(layer.previous, 0, 0, batch);
  slice(next, 1, kept, tokens).copy_from(slice(detach(x), 1, length - added, length));
  if (kept > 0) slice(next, 1, 0, kept).copy_from(slice(previous, 1, added, tokens));
}

NamedTensors SegmentMemory::state() const {
  NamedTensors tensors;
  for (const auto& [name, layer] : layers_) tensors.emplace_back(name, layer.next);
  return tensors;
}

}  // namespace tapeformer
