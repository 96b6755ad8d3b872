#include "models/layers/lstm.h"

#include <cmath>

#include "core/base/interruption.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"

namespace tapeformer {
namespace {

const LstmOptions& check_options(const LstmOptions& options) {
  if (options.input_width <= 0 || options.hidden <= 0 || options.layers <= 0)
    throw OptionError("hidden", concat_text("expected sizes above 0, got input ", options.input_width,
                                            ", hidden ", options.hidden, ", layers ", options.layers));
  return options;
}

}  // namespace

// The module stores pointers to the elements of `layers`. Therefore, `layers` gets its final size before the
// parameters are registered.
LstmStack::LstmStack(const LstmOptions& options)
    : layers(static_cast<size_t>(check_options(options).layers),
             std::vector<LstmWeights>(options.bidirectional ? 2 : 1)),
      options_(options) {
  const int64_t hidden = options.hidden;
  const Initializer initializer = make_uniform_initializer(1 / std::sqrt(static_cast<double>(hidden)));
  for (size_t l = 0; l < layers.size(); ++l)
    for (size_t d = 0; d < layers[l].size(); ++d) {
      LstmWeights& w = layers[l][d];
      const std::string suffix = "_l" + std::to_string(l) + (d == 1 ? "_reverse" : "");
      const int64_t in = l == 0 ? options.input_width : options.output_width();
      add_parameter("weight_ih" + suffix, w.weight_ih, {4 * hidden, in}, initializer);
      add_parameter("weight_hh" + suffix, w.weight_hh, {4 * hidden, hidden}, initializer);
      add_parameter("bias_ih" + suffix, w.bias_ih, {4 * hidden}, initializer);
      add_parameter("bias_hh" + suffix, w.bias_hh, {4 * hidden}, initializer);
    }
}

Tensor LstmStack::forward(const Tensor& x, const Tensor& lengths, const ForwardContext& context) const {
  Tensor y = x;
  for (size_t l = 0; l < layers.size(); ++l) {
    throw_if_interrupted();
    const DropoutMask mask = context.make_dropout_mask(options_.dropout, "lstm." + std::to_string(l));
    if (l > 0) y = dropout(y, mask.at_offset(context.first_example * y.size(1) * y.size(2)));
    y = lstm(y, lengths, layers[l]);
  }
  return y;
}

}  // namespace tapeformer
