#include "models/encoder/encoder.h"

#include "autograd/recompute.h"
#include "models/encoder/reversible.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const EncoderOptions& check_options(const EncoderOptions& options) {
  const std::vector<OptionProblem> problems = find_option_problems(options);
  if (!problems.empty()) throw OptionError(problems.front());
  return options;
}

}  // namespace

Encoder::Encoder(const EncoderOptions& options)
    : norm(check_options(options).output_width(), options.norm), options_(options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    const int64_t first = find_first_equal_layer(options.attention, i);
    const Attention* const attention =
        first < i ? &layers[static_cast<size_t>(first)]->attention.inner_attention() : nullptr;
    layers.push_back(std::make_unique<EncoderLayer>(options, i, attention));
    add_child(layers.back()->name(), *layers.back());
  }
  add_child(options.name + "norm", norm);
}

Tensor Encoder::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                        const EncodedSource& source) const {
  if (options_.reversible) {
    const Tensor first = options_.doubled_input ? x : Tensor::zeros(x.shape(), x.dtype(), x.device());
    const Tensor halves =
        run_reversible_stack(layers, options_.feedforward_chunks, first, x, mask, context, source);
    const int64_t width = options_.width();
    return norm.forward(options_.average_halves
                            ? mul(add(slice(halves, -1, 0, width), slice(halves, -1, width, 2 * width)), 0.5)
                            : halves);
  }
  const bool recomputed = options_.recompute && is_recording();
  const ReplayContext replay(context, recomputed);
  HiddenStates states{x};
  for (const auto& layer : layers) {
    if (recomputed) {
      const auto segment = [&layer = *layer, mask, replay,
                            lengths = source.lengths](const std::vector<Tensor>& in) {
        return layer.forward(in[0], mask, *replay,
                             in.size() > 1 ? EncodedSource{in[1], lengths} : EncodedSource());
      };
      std::vector<Tensor> inputs = {states.x1};
      if (source.states.defined()) inputs.push_back(source.states);
      states.x1 = recompute(segment, inputs, layer->leaves());
    } else {
      layer->apply(states, mask, context, source);
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
                      size.stores_state ? layer.attention.sizes().result_width() * layer.attention.sizes().dim
                                        : options_.width());
    if (const ShortConv* const conv = layer.attention.conv(); conv && size.stores_state)
      memory->add_layer(MultiHeadAttention::get_conv_memory_name(layer.name()),
                        {.tokens = conv->weight.size(1) - 1}, conv->weight.size(0));
  }
  return memory;
}

}  // namespace tapeformer
