// Small models with a segment memory, and a function that computes their outputs segment by segment.
#pragma once

#include "autograd/tape.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

namespace tapeformer::test {

constexpr int64_t kText = 12, kSegment = 4;

using KindOptions = std::vector<std::pair<std::string, OptionValue>>;

// Returns the options of a model of symbols with a segment memory.
inline AutoregressiveModelOptions segment_options(const std::string& kind, const KindOptions& values,
                                                  int64_t max_length = kText) {
  AutoregressiveModelOptions options = small_options(kind, OutputHead::categorical);
  options.encoder.attention = {{kind, find_attention_kind(kind).make_options(values)}};
  options.position_kind = PositionKind::none;
  options.vocabulary_size = 2 * kText;
  options.max_length = max_length;
  return options;
}

// Returns a float64 model. Parameters with the same name have the same values in all models.
inline std::unique_ptr<AutoregressiveModel> segment_model(const AutoregressiveModelOptions& options) {
  auto model = std::make_unique<AutoregressiveModel>(options);
  model->initialize(4);
  model->convert(DType::float64);
  // Replaces the initial biases by larger values, so that the tests detect errors in the use of biases.
  for (const auto& [name, parameter] : model->parameters())
    if (name.ends_with("_bias")) parameter.copy_from(normal(parameter.shape(), 8));
  return model;
}

// Returns the outputs for tokens (batch, length), computed segment by segment.
inline Tensor by_segments(const AutoregressiveModel& model, const Tensor& tokens) {
  const NoGradScope no_grad;
  const auto memory = model.encoder.make_segment_memory(tokens.size(0));
  std::vector<Tensor> outputs;
  for (int64_t first = 0; first < tokens.size(1); first += kSegment) {
    memory->start_segment(first);
    const int64_t last = std::min(first + kSegment, tokens.size(1));
    outputs.push_back(model.forward(slice(tokens, 1, first, last), {.memory = memory.get()}));
  }
  return concat(outputs, 1);
}

}  // namespace tapeformer::test
