// Tests of models that compute the feed-forward layers and the loss in chunks of tokens.
#include <doctest/doctest.h>

#include "core/allocator.h"
#include "models/autoregressive_model.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kBatch = 3, kLength = 11;

enum class Form { post, pre, recompute, reversible };

AutoregressiveModelOptions options_of(Form form, OutputHead head) {
  AutoregressiveModelOptions options = small_options("linear", head);
  options.encoder.dropout = 0.2;
  options.encoder.pre_norm = form != Form::post;
  options.encoder.recompute = form == Form::recompute;
  options.encoder.reversible = form == Form::reversible;
  return options;
}

// Returns one list with the loss of a float64 model and the gradients of all parameters.
std::vector<double> results_of(const AutoregressiveModelOptions& options, const Batch& batch) {
  AutoregressiveModel model(options);
  model.initialize(3);
  model.convert(DType::float64);
  const Tensor loss = model.compute_loss(batch, {.training = true, .seed = 5, .step = 2});
  std::vector<double> results = loss.to_vector();
  backward(loss);
  for (const auto& [bound_name, parameter] : model.parameters()) {
    const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
    REQUIRE_MESSAGE(gradient(parameter).defined(), name);
    for (const double g : gradient(parameter).to_vector()) results.push_back(g);
  }
  return results;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

Batch batch_of(const AutoregressiveModelOptions& options, bool masked) {
  Batch batch{random_tokens(kBatch, kLength + 1, options.vocabulary_size), {}, {}};
  if (!masked) return batch;
  // The first 16 rows are masked, so in some chunks all rows are masked.
  batch.mask = Tensor::zeros({kBatch, kLength}, DType::uint8);
  for (int64_t i = 0; i < batch.mask.numel(); ++i) batch.mask.data<uint8_t>()[i] = i > 15 && i % 3 != 0;
  return batch;
}

// Returns the peak memory in bytes of a training step, without parameters and their gradients.
int64_t step_peak(const AutoregressiveModelOptions& options) {
  AutoregressiveModel model(options);
  model.initialize(3);
  const Batch batch{random_tokens(8, options.max_length + 1, options.vocabulary_size), {}, {}};
  int64_t peak = 0;
  for (int run = 0; run < 2; ++run) {
    const int64_t before = get_device_allocator().stats().active_bytes;
    get_device_allocator().reset_peak();
    backward(model.compute_loss(batch, {.training = true, .seed = 5, .step = 2}));
    peak = get_device_allocator().stats().peak_bytes - before;
  }
  return peak;
}

}  // namespace

TEST_CASE("feed-forward and loss chunks change neither loss nor gradients, with dropout") {
  for (const Form form : {Form::post, Form::pre, Form::recompute, Form::reversible})
    for (const OutputHead head : {OutputHead::logistic_mixture, OutputHead::categorical})
      for (const bool masked : {false, true}) {
        AutoregressiveModelOptions options = options_of(form, head);
        const Batch batch = batch_of(options, masked);
        const auto whole = results_of(options, batch);
        for (const int64_t chunks : {2, 7, 33, 1000}) {
          CAPTURE(chunks);
          options.encoder.feedforward_chunks = chunks;
          options.loss_chunks = 1;
          CHECK(difference(whole, results_of(options, batch)) < 1e-12);
          options.encoder.feedforward_chunks = 1;
          options.loss_chunks = chunks;
          CHECK(difference(whole, results_of(options, batch)) < 1e-12);
        }
      }
}

TEST_CASE("the loss and gradients of a fully masked batch are zero, also with chunks") {
  AutoregressiveModelOptions options = options_of(Form::reversible, OutputHead::categorical);
  options.loss_chunks = 4;
  Batch batch = batch_of(options, true);
  batch.mask.fill(0);
  for (const double value : results_of(options, batch)) CHECK(value == 0);
}

TEST_CASE("the memory of a step is about inversely proportional to the number of chunks") {
  AutoregressiveModelOptions options = options_of(Form::reversible, OutputHead::categorical);
  options.max_length = 128;
  options.encoder.dropout = 0;
  const auto peaks = [&](int64_t& chunks) {
    std::vector<int64_t> list;
    for (const int64_t count : {1, 2, 4, 16}) {
      chunks = count;
      list.push_back(step_peak(options));
    }
    chunks = 1;
    return list;
  };
  SUBCASE("feed-forward") {
    options.encoder.feedforward = 2048;
    const auto list = peaks(options.encoder.feedforward_chunks);
    CHECK(static_cast<double>(list[1]) < 0.65 * static_cast<double>(list[0]));
    CHECK(static_cast<double>(list[2]) < 0.35 * static_cast<double>(list[0]));
    CHECK(static_cast<double>(list[3]) < 0.15 * static_cast<double>(list[0]));
  }
  SUBCASE("loss") {
    options.vocabulary_size = 1000;
    options.encoder.feedforward = 4;
    options.encoder.head_dim = 2;
    const auto list = peaks(options.loss_chunks);
    CHECK(static_cast<double>(list[1]) < 0.6 * static_cast<double>(list[0]));
    CHECK(static_cast<double>(list[2]) < 0.4 * static_cast<double>(list[0]));
    CHECK(static_cast<double>(list[3]) < 0.25 * static_cast<double>(list[0]));
  }
}
