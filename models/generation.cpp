#include "models/generation.h"

#include <cmath>

#include "core/cuda/graph.h"
#include "models/decoder.h"
#include "ops/class_sampling.h"
#include "ops/optimizer_step.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Draws tokens from the distributions of a model and checks its logits.
class Sampler {
 public:
  Sampler(const AutoregressiveOptions& model, const GenerationOptions& options, Device device)
      : head_(model.head),
        options_(options),
        stream_(options.seed, "generate"),
        squares_(Tensor::zeros({1}, DType::float64, device)),
        total_(Tensor::zeros({1}, DType::float64, device)) {}

  // Draws token t + 1 of every sequence, (batch,) uint8, from parameters (batch, outputs).
  void draw(const Tensor& parameters, int64_t t, const Tensor& tokens) const {
    const RandomStream stream = stream_.at_step(static_cast<uint64_t>(t));
    squared_norms_into({parameters}, squares_);
    total_.add_from(squares_);
    if (head_ == Head::logistic_mixture)
      return sample_logistic_mixture(parameters, stream, options_.first_sequence, tokens, options_.scale);
    sample_classes(parameters, stream, options_.first_sequence, tokens, options_.greedy);
  }

  // Throws DivergedError if a token was drawn from non-finite logits.
  void check_logits() const {
    if (!std::isfinite(total_.item()))
      throw DivergedError("generate: the logits of the model are not finite numbers");
  }

 private:
  Head head_;
  GenerationOptions options_;
  RandomStream stream_;
  // Sums of squares of the logits of the newest token and of all tokens. Finite if all logits are finite.
  Tensor squares_, total_;
};

// Fills `columns` (length, batch) after the first `prefix` rows. On a CUDA device, tokens and the position
// stay in device memory, so the host only launches kernels.
void generate_recurrently(const AutoregressiveModel& model, const Sampler& sampler, const Tensor& columns,
                          int64_t prefix, bool graphs) {
  const int64_t length = columns.size(0), batch = columns.size(1);
  const Device device = columns.device();
  const Tensor tokens = Tensor::empty({batch}, DType::uint8, device);
  Decoder decoder(model, batch);
  // Reads token t and writes token t + 1.
  const auto step = [&](int64_t t, bool draws) {
    const Tensor& parameters = decoder.step(tokens);
    if (draws) sampler.draw(parameters, t, tokens);
    advance_tokens(columns, t + 1, prefix, tokens);
  };
  advance_tokens(columns, 0, prefix, tokens);
  if constexpr (kHasCuda)
    if (graphs && !device.is_cpu() && length > 3) {
      // Every step draws a token, and advance_tokens() ignores it in the prefix. The first step runs before
      // the capture, because kernels must run once before a capture.
      step(0, true);
      cuda::Graph graph(device, 1, [&] { step(1, true); });
      for (int64_t t = 1; t + 1 < length; ++t) graph.launch(t - 1);
      return;
    }
  for (int64_t t = 0; t + 1 < length; ++t) step(t, t + 1 >= prefix);
}

}  // namespace

Tensor generate(const AutoregressiveModel& model, const Tensor& prefix, int64_t length,
                const GenerationOptions& options) {
  check(prefix.rank() == 2 && prefix.size(1) >= 1 && prefix.size(1) <= length, "generate", "prefix ",
        prefix.shape(), " must be (batch, 1 to ", length, ")");
  check(length <= model.options().max_length + 1, "generate", "length ", length,
        " exceeds the maximum length of the model, ", model.options().max_length + 1);
  check(model.options().vocabulary <= 256, "generate", "expected a vocabulary of at most 256 tokens, got ",
        model.options().vocabulary);
  const NoGrad no_grad;
  const int64_t batch = prefix.size(0), prefix_length = prefix.size(1);
  // Row t of the buffer holds token t of all sequences. It is on the device of the model, so the host waits
  // only at the end.
  const Tensor columns = Tensor::zeros({length, batch}, DType::uint8, model.predictor.weight.device());
  const Sampler sampler(model.options(), options, columns.device());
  columns.view({prefix_length, batch}, columns.strides()).copy_from(transpose(prefix, 0, 1));
  const auto column = [&](int64_t t) { return columns.view({batch}, {1}, t * batch); };
  if (options.mode == GenerationMode::recurrent) {
    generate_recurrently(model, sampler, columns, prefix_length, options.graphs);
  } else {
    for (int64_t t = prefix_length - 1; t + 1 < length; ++t) {
      const Tensor tokens = columns.view({batch, t + 1}, {1, batch}).clone();
      const Tensor outputs = model.forward(tokens, {.prefix = true});
      sampler.draw(contiguous(slice(outputs, 1, t, t + 1)).view({batch, outputs.size(2)}), t, column(t + 1));
    }
  }
  sampler.check_logits();
  return columns.view({batch, length}, {1, batch}).clone().to(kCpu);
}

}  // namespace tapeformer
