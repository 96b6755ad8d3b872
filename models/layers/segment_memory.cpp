#include "models/layers/segment_memory.h"

#include <algorithm>

#include "ops/view.h"

namespace tapeformer {

SegmentMemory::RowBuffers SegmentMemory::make_row_buffers(int64_t capacity, int64_t width) const {
  if (capacity == 0) return {};
  const auto zeros = [&] {
    return Tensor::zeros({batch_size_, capacity, width}, prototype_.dtype(), prototype_.device());
  };
  return {zeros(), zeros()};
}

void SegmentMemory::add_layer(const std::string& name, const SegmentMemorySize& size, int64_t width) {
  check(size.compressed_rows == 0 || size.tokens > 0, "SegmentMemory", "a compressed memory of ",
        size.compressed_rows, " rows needs a memory of tokens");
  if (size.tokens == 0) return;
  layers_[name] = {size, make_row_buffers(size.tokens, width), make_row_buffers(size.compressed_rows, width)};
}

void SegmentMemory::start_segment(int64_t preceding_token_count) {
  preceding_token_count_ = preceding_token_count;
  for (auto& [name, layer] : layers_) {
    for (const RowBuffers* rows : {&layer.tokens, &layer.compressed})
      if (rows->next.defined()) rows->previous.copy_from(rows->next);
    layer.is_written = false;
  }
}

int64_t SegmentMemory::count_valid_tokens(const Layer& layer) const {
  return std::min(layer.size.tokens, preceding_token_count_);
}

Tensor SegmentMemory::get_newest_rows(const RowBuffers& rows, int64_t batch, int64_t valid) {
  const int64_t capacity = rows.previous.size(1);
  return slice(slice(rows.previous, 0, 0, batch), 1, capacity - valid, capacity);
}

Tensor SegmentMemory::read(const std::string& name, int64_t batch) const {
  const auto found = layers_.find(name);
  if (found == layers_.end() || preceding_token_count_ == 0) return {};
  check(batch <= batch_size_, "SegmentMemory", "a batch of ", batch, " segments, and memory for ",
        batch_size_);
  const Layer& layer = found->second;
  const Tensor tokens = get_newest_rows(layer.tokens, batch, count_valid_tokens(layer));
  const int64_t older = (preceding_token_count_ - count_valid_tokens(layer)) / layer.size.compression_rate;
  const int64_t compressed = std::min(layer.size.compressed_rows, older);
  return compressed > 0 ? concat({get_newest_rows(layer.compressed, batch, compressed), tokens}, 1) : tokens;
}

void SegmentMemory::append(const RowBuffers& rows, const Tensor& x) {
  const int64_t batch = x.size(0), length = x.size(1), capacity = rows.next.size(1);
  const int64_t added = std::min(length, capacity), kept = capacity - added;
  const Tensor next = slice(rows.next, 0, 0, batch), previous = slice(rows.previous, 0, 0, batch);
  slice(next, 1, kept, capacity).copy_from(slice(x, 1, length - added, length));
  if (kept > 0) slice(next, 1, 0, kept).copy_from(slice(previous, 1, added, capacity));
}

Tensor SegmentMemory::write(const std::string& name, const Tensor& recorded) {
  const auto found = layers_.find(name);
  if (found == layers_.end() || found->second.is_written) return {};
  const NoGradScope no_grad;
  Layer& layer = found->second;
  layer.is_written = true;
  const Tensor x = detach(recorded);
  append(layer.tokens, x);
  const int64_t valid = count_valid_tokens(layer), excess = valid + x.size(1) - layer.size.tokens;
  const int64_t evicted = excess / layer.size.compression_rate * layer.size.compression_rate;
  if (layer.size.compressed_rows == 0 || evicted <= 0) return {};
  const Tensor inputs =
      valid > 0 ? concat({get_newest_rows(layer.tokens, x.size(0), valid).to(x.dtype()), x}, 1) : x;
  return slice(inputs, 1, 0, evicted).clone();
}

void SegmentMemory::write_compressed(const std::string& name, const Tensor& rows) {
  const NoGradScope no_grad;
  append(layers_.at(name).compressed, detach(rows));
}

NamedTensors SegmentMemory::state() const {
  NamedTensors tensors;
  for (const auto& [name, layer] : layers_) {
    tensors.emplace_back(name, layer.tokens.next);
    if (layer.compressed.next.defined()) tensors.emplace_back(name + ".compressed", layer.compressed.next);
  }
  return tensors;
}

}  // namespace tapeformer
