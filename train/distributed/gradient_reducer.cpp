#include "train/distributed/gradient_reducer.h"

#include <algorithm>

#include "autograd/tape.h"

namespace tapeformer {

GradientReducer::GradientReducer(Communicator& processes, std::vector<Tensor> parameters,
                                 const ReducerOptions& options)
    : communicator_(processes) {
  for (Tensor& parameter : parameters) {
    slot_by_id_[parameter.id()] = slots_.size();
    slots_.push_back({.parameter = std::move(parameter), .sum = {}, .reduction_buffer = {}});
  }
  std::vector<size_t> slots;
  int64_t bytes = 0;
  for (size_t i = slots_.size(); i-- > 0;) {
    const int64_t added = slots_[i].parameter.bytes();
    if (!slots.empty() && bytes + added > options.max_bucket_bytes) {
      add_bucket(slots, options);
      slots.clear();
      bytes = 0;
    }
    slots.push_back(i);
    bytes += added;
  }
  if (!slots.empty()) add_bucket(slots, options);
}

void GradientReducer::add_bucket(const std::vector<size_t>& slots, const ReducerOptions& options) {
  const Tensor& first = slots_[slots.front()].parameter;
  int64_t elements = 0;
  for (const size_t i : slots) elements += slots_[i].parameter.numel();
  Bucket bucket;
  bucket.slots = slots;
  bucket.sums = Tensor::zeros({elements}, first.dtype(), first.device());
  const bool rounds = options.use_bfloat16 && first.dtype() == DType::float32;
  bucket.reduction_buffer = rounds ? Tensor::zeros({elements}, DType::bfloat16, first.device()) : bucket.sums;
  int64_t offset = 0;
  for (const size_t i : slots) {
    ParameterSlot& slot = slots_[i];
    const Shape shape = slot.parameter.shape(), strides = shape.contiguous_strides();
    slot.bucket = buckets_.size();
    slot.sum = bucket.sums.view(shape, strides, offset);
    slot.reduction_buffer = bucket.reduction_buffer.view(shape, strides, offset);
    offset += slot.parameter.numel();
  }
  buckets_.push_back(std::move(bucket));
}

void GradientReducer::begin_step() {
  next_bucket_ = 0;
  for (ParameterSlot& slot : slots_) slot.is_complete = false;
  for (Bucket& bucket : buckets_) bucket.incomplete_count = bucket.slots.size();
}

// Copies the gradient of a parameter to slot.reduction_buffer. If the parameter has no gradient, fills
// slot.reduction_buffer with zeros.
void GradientReducer::copy_gradient_to_slot(const ParameterSlot& slot) {
  if (const Tensor g = gradient(slot.parameter); g.defined())
    slot.reduction_buffer.copy_from(g);
  else
    slot.reduction_buffer.fill(0);
}

void GradientReducer::mark_complete(const Tensor& parameter) {
  const auto found = slot_by_id_.find(parameter.id());
  if (found == slot_by_id_.end()) return;  // the leaf is not a trained parameter
  ParameterSlot& slot = slots_[found->second];
  copy_gradient_to_slot(slot);
  slot.is_complete = true;
  --buckets_[slot.bucket].incomplete_count;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].incomplete_count == 0)
    start_complete_reductions();
}

void GradientReducer::start_complete_reductions() {
  communicator_.start_all_reduce(buckets_[next_bucket_++].reduction_buffer);
}

void GradientReducer::exchange_gradient_flags() {
  const Tensor counts = Tensor::zeros({static_cast<int64_t>(slots_.size())}, DType::int64);
  for (size_t i = 0; i < slots_.size(); ++i)
    counts.data<int64_t>()[i] = gradient(slots_[i].parameter).defined();
  communicator_.all_reduce(counts);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].has_gradient = counts.data<int64_t>()[i] > 0;
  are_gradient_flags_known_ = true;
}

void GradientReducer::finish_step(const std::vector<Tensor>& additional) {
  for (const ParameterSlot& slot : slots_)
    if (!slot.is_complete) copy_gradient_to_slot(slot);
  while (next_bucket_ < buckets_.size()) start_complete_reductions();
  for (const Tensor& values : additional) communicator_.start_all_reduce(values);
  communicator_.wait();
  // On the CPU, ParameterSlot::has_gradient can change after the first step. For example, a parameter can get
  // no gradient in the first step because the segment memory is empty. On a CUDA device, the flags of the
  // first step are valid for all steps, because a captured graph repeats the operations of one step.
  if (!are_gradient_flags_known_ || is_on_cpu()) exchange_gradient_flags();
  for (const Bucket& bucket : buckets_)
    if (bucket.reduction_buffer.dtype() != bucket.sums.dtype())
      bucket.sums.copy_from(bucket.reduction_buffer);
  for (const ParameterSlot& slot : slots_)
    set_gradient(slot.parameter, slot.has_gradient ? slot.sum : Tensor{});
}

int64_t GradientReducer::count_bytes_per_step() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.reduction_buffer.bytes();
  return bytes;
}

}  // namespace tapeformer
