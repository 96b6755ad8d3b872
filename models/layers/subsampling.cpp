#include "models/layers/subsampling.h"

#include "models/layers/option_error.h"
#include "ops/lengths.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr int64_t kKernel = 3;
constexpr Conv1dOptions kHalving{.stride = 2, .padding_before = 1};

Tensor view_frame(const Tensor& window, int64_t index, int64_t width) {
  return window.view({window.size(0), width}, {window.size(1), 1}, index * width);
}

Tensor count_subsampled_frames(const Tensor& lengths, int64_t factor) {
  const Tensor result = lengths.clone();
  for (int64_t b = 0; b < result.numel(); ++b) {
    int64_t& length = result.data<int64_t>()[b];
    length = count_subsampled_steps(length, factor);
  }
  return result;
}

}  // namespace

Subsampling::Subsampling(const SubsamplingOptions& options) : options_(options) {
  if (options.factor != 1 && options.factor != 2 && options.factor != 4)
    throw OptionError("subsampling", concat_text("expected 1, 2 or 4, got ", options.factor));
  if (options.kind != SubsamplingKind::conv) return;
  for (int64_t left = options.factor, in = options.features; left > 1; left /= 2, in = options.channels) {
    layers.push_back(std::make_unique<Conv1dRelu>(in, options.channels, kKernel, kHalving));
    add_child(std::to_string(layers.size() - 1), *layers.back());
  }
}

Tensor Subsampling::forward(const Tensor& x, const Tensor& frame_lengths) const {
  if (options_.factor == 1) return x;
  if (layers.empty()) {
    const int64_t steps = count_subsampled_steps(x.size(1), options_.factor);
    return reshape(slice(x, 1, 0, steps * options_.factor), {x.size(0), steps, options_.factor * x.size(2)});
  }
  Tensor y = x;
  int64_t factor = 1;
  for (const auto& layer : layers) {
    y = layer->forward(y, count_subsampled_frames(frame_lengths, factor));
    factor *= 2;
  }
  return y;
}

Tensor Subsampling::count_steps(const Tensor& frame_lengths, int64_t batch, int64_t frames) const {
  return count_subsampled_frames(prepare_lengths("speech model", "length", frame_lengths, batch, frames),
                                 options_.factor);
}

StreamingSubsampling::StreamingSubsampling(const Subsampling& subsampling, int64_t batch, const Tensor& like)
    : factor_(subsampling.options().factor) {
  const SubsamplingOptions& o = subsampling.options();
  const auto buffer = [&](int64_t width) {
    return Tensor::zeros({batch, width}, like.dtype(), like.device());
  };
  for (const auto& conv : subsampling.layers) {
    const Tensor& weight = conv->weight;
    const int64_t row = weight.size(1) * weight.size(2);
    layers_.push_back({DecodingLinear(detach(weight).view({o.channels, row}), conv->bias, batch), buffer(row),
                       buffer(o.channels), 0});
  }
  if (layers_.empty()) window_ = buffer(o.output_width());
}

void StreamingSubsampling::reset() {
  window_frame_count_ = 0;
  for (Layer& layer : layers_) {
    layer.pair_frame_count = 0;
    layer.window.fill(0);
  }
}

bool StreamingSubsampling::push(const Tensor& frame) {
  if (layers_.empty()) {
    view_frame(window_, window_frame_count_, frame.size(1)).copy_from(frame);
    window_frame_count_ = (window_frame_count_ + 1) % factor_;
    return window_frame_count_ == 0;
  }
  const Tensor* newest = &frame;
  for (Layer& layer : layers_) {
    if (!push(layer, *newest)) return false;
    newest = &layer.output;
  }
  return true;
}

bool StreamingSubsampling::push(Layer& layer, const Tensor& frame) {
  const int64_t in = frame.size(1);
  const bool completes_pair = layer.pair_frame_count == 1;
  view_frame(layer.window, 1 + layer.pair_frame_count, in).copy_from(frame);
  layer.pair_frame_count = 1 - layer.pair_frame_count;
  if (!completes_pair) return false;
  layer.convolution.forward_into(layer.window, Activation::relu, layer.output);
  view_frame(layer.window, 0, in).copy_from(frame);
  return true;
}

}  // namespace tapeformer
