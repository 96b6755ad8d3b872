#include "models/encoder/encoder.h"

#include "autograd/recompute.h"
#include "models/encoder/reversible.h"

namespace tapeformer {
namespace {

const EncoderOptions& check_options(const EncoderOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options);
  if (!problems.empty()) throw OptionError(problems.front());
  return options;
}

}  // namespace

Encoder::Encoder(const EncoderOptions& options)
    : norm(check_options(options).output_width()), options_(options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    const int64_t first = find_first_equal_layer(options.attention, i);
    const Attention* const attention =
        first < i ? &layers[static_cast<size_t>(first)]->attention.inner_attention() : nullptr;
    layers.push_back(std::make_unique<EncoderLayer>(options, i, attention));
    add_child(layers.back()->name(), *layers.back());
  }
  add_child("norm", norm);
}

Tensor Encoder::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const {
  if (options_.reversible)
    return norm.forward(run_reversible_stack(layers, options_.feedforward_chunks, x, mask, context));
  const bool recomputed = options_.recompute && is_recording();
  const ReplayContext replay(context, recomputed);
  HiddenStates states{x};
  for (const auto& layer : layers) {
    if (recomputed) {
      states.x1 =
          recompute([&layer = *layer, mask,
                     replay](const std::vector<Tensor>& in) { return layer.forward(in[0], mask, *replay); },
                    {states.x1}, layer->leaves());
    } else {
      layer->apply(states, mask, context);
    }
  }
  return norm.forward(states.x1);
}

std::unique_ptr<SegmentMemory> Encoder::make_segment_memory(int64_t batch) const {
  if (compute_max_memory_span(options_.attention) == 0) return nullptr;
  auto memory = std::make_unique<SegmentMemory>(batch, norm.weight);
  for (int64_t i = 0; i < options_.layers; ++i) {
    const AttentionLayerChoice& choice = find_layer_choice(options_.attention, i);
    const EncoderLayer& layer = *layers[static_cast<size_t>(i)];
    const SegmentMemorySize size = find_attention_kind(choice.kind).get_segment_memory_size(choice.options);
    memory->add_layer(layer.name(), size,
                      size.stores_state ? options_.width() * options_.head_dim : options_.width());
    if (const ShortConv* const conv = layer.attention.conv(); conv && size.stores_state)
      memory->add_layer(MultiHeadAttention::get_conv_memory_name(layer.name()),
                        {.tokens = conv->weight.size(1) - 1}, conv->weight.size(0));
  }
  return memory;
}

}  // namespace tapeformer
