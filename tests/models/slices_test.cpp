// Tests that an example draws the same random numbers in a slice of a batch as in the whole batch.
// Data-parallel training depends on this property.
#include <doctest/doctest.h>

#include "models/layers/lstm.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kWholeBatch = 6;

ForwardContext training_from(int64_t first_example) {
  return {.training = true, .seed = 5, .step = 2, .first_example = first_example};
}

// Returns the largest difference between the result for the whole batch and the results for slices of two
// examples. `forward` takes the examples and a context, and returns one result per example.
template <class F>
double slice_error(const Tensor& x, F&& forward) {
  const Tensor whole = forward(x, training_from(0));
  double error = 0;
  for (int64_t first = 0; first < x.size(0); first += 2)
    error = std::max(error, max_difference(forward(slice(x, 0, first, first + 2), training_from(first)),
                                           slice(whole, 0, first, first + 2)));
  return error;
}

EncoderOptions encoder_with_dropout(const std::string& attention) {
  EncoderOptions options = small_encoder(attention);
  options.dropout = 0.3;
  options.attention_dropout = find_attention_kind(attention).capabilities.weight_dropout ? 0.3 : 0;
  return options;
}

double encoder_error(const EncoderOptions& options) {
  Encoder encoder(options);
  encoder.initialize(3);
  encoder.convert(DType::float64);
  return slice_error(normal({kWholeBatch, 11, options.width()}, 4),
                     [&](const Tensor& x, const ForwardContext& c) {
                       return encoder.forward(x, {.causal = true, .key_lengths = {}}, c);
                     });
}

}  // namespace

TEST_CASE("slices of a batch draw the random numbers of the whole batch, with every attention kind") {
  for (const std::string& attention : causal_kinds()) {
    CAPTURE(attention);
    EncoderOptions options = encoder_with_dropout(attention);
    CHECK(encoder_error(options) < 1e-12);
    options.feedforward_chunks = 3;
    CHECK(encoder_error(options) < 1e-12);
    options.recompute = true;
    CHECK(encoder_error(options) < 1e-12);
  }
}

TEST_CASE("slices of a batch draw the random numbers of the whole batch, in reversible layers") {
  for (const std::string& attention : reversible_kinds()) {
    CAPTURE(attention);
    EncoderOptions options = encoder_with_dropout(attention);
    options.pre_norm = options.reversible = true;
    options.feedforward_chunks = 2;
    CHECK(encoder_error(options) < 1e-12);
  }
}

TEST_CASE("slices of a batch draw the random numbers of the whole batch, between layers of an LSTM") {
  LstmStack stack({.input_width = 4, .hidden = 3, .layers = 3, .bidirectional = true, .dropout = 0.4});
  stack.initialize(3);
  stack.convert(DType::float64);
  CHECK(slice_error(normal({kWholeBatch, 5, 4}, 4), [&](const Tensor& x, const ForwardContext& c) {
          return stack.forward(x, Tensor::full({x.size(0)}, 5, DType::int64), c);
        }) < 1e-12);
}

TEST_CASE("control: slices that start at example 0 draw other numbers") {
  for (const std::string attention : {"linear", "lsh"}) {
    EncoderOptions options = encoder_with_dropout(attention);
    if (attention == "lsh") options.dropout = 0;  // so that only the random rotations can differ
    Encoder encoder(options);
    encoder.initialize(3);
    encoder.convert(DType::float64);
    CHECK(slice_error(normal({kWholeBatch, 11, options.width()}, 4),
                      [&](const Tensor& x, const ForwardContext&) {
                        return encoder.forward(x, {.causal = true, .key_lengths = {}}, training_from(0));
                      }) > 1e-3);
  }
}
