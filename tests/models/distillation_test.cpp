#include "models/distillation.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::unique_ptr<AutoregressiveModel> make_model_with(const std::string& attention, uint64_t seed,
                                                     int64_t loss_chunks = 1) {
  AutoregressiveModelOptions options = small_options(attention, OutputHead::categorical);
  options.loss_chunks = loss_chunks;
  auto model = std::make_unique<AutoregressiveModel>(options);
  model->initialize(seed);
  model->convert(DType::float64);
  return model;
}

// Copies the parameters that both models have.
void copy_shared_parameters(const Module& from, const Module& to) {
  const NamedTensors source = from.parameters();
  for (const auto& [name, parameter] : to.parameters())
    for (const auto& [other, tensor] : source)
      if (name == other) detach(parameter).copy_from(tensor);
}

const Batch kTokenBatch{.tokens = random_tokens(2, 12, 7)};

double distillation_loss_of(const AutoregressiveModel& teacher, const AutoregressiveModel& student,
                            DistillationTarget target) {
  return compute_distillation_loss(teacher, student, target, kTokenBatch, {}).item();
}

Tensor find_in(const Module& module, const std::string& name) {
  for (const auto& [found, tensor] : module.parameters())
    if (found == name) return tensor;
  throw std::invalid_argument("no parameter " + name);
}

}  // namespace

TEST_CASE("distillation: equal models have a divergence of 0 whose gradient is 0") {
  for (const int64_t chunks : {1, 3}) {
    CAPTURE(chunks);
    const auto teacher = make_model_with("softmax", 1), student = make_model_with("softmax", 1, chunks);
    const Tensor loss =
        compute_distillation_loss(*teacher, *student, DistillationTarget::logits, kTokenBatch, {});
    CHECK(std::abs(loss.item()) < 1e-14);
    backward(loss);
    for (const auto& [name, parameter] : student->parameters()) {
      CAPTURE(name);
      if (gradient(parameter).defined())
        CHECK(max_difference(gradient(parameter), Tensor::zeros(parameter.shape(), DType::float64)) < 1e-14);
    }
  }
}

TEST_CASE(
    "distillation: the divergence is that of the distributions of the next token, and skips masked tokens") {
  const auto teacher = make_model_with("softmax", 1), student = make_model_with("linear", 2, 3);
  Batch batch = kTokenBatch;
  batch.mask = Tensor::zeros({2, 11}, DType::uint8);
  batch.mask.data<uint8_t>()[3] = batch.mask.data<uint8_t>()[15] = 1;
  const Tensor inputs = slice(batch.tokens, 1, 0, -1);
  const Tensor p = reshape(log_softmax(teacher->forward(inputs, {})), {22, 7}),
               q = reshape(log_softmax(student->forward(inputs, {})), {22, 7});
  double expected = 0;
  for (const int64_t row : {3, 15})
    for (int64_t c = 0; c < 7; ++c) {
      const double a = p.data<double>()[row * 7 + c], b = q.data<double>()[row * 7 + c];
      expected += std::exp(a) * (a - b) / 2;
    }
  CHECK(compute_distillation_loss(*teacher, *student, DistillationTarget::logits, batch, {}).item() ==
        doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE(
    "distillation: the losses of layers are independent, and parameters outside of the attention have no "
    "gradient") {
  const auto teacher = make_model_with("softmax", 1), student = make_model_with("window-linear", 2);
  copy_shared_parameters(*teacher, *student);
  for (const DistillationTarget target : {DistillationTarget::heads, DistillationTarget::attention}) {
    const double before = distillation_loss_of(*teacher, *student, target);
    CHECK(before > 0);
    for (const char* name : {"layers.0.linear1.weight", "predictor.weight", "value_embedding.weight"})
      detach(find_in(*student, name)).add_scaled(normal(find_in(*student, name).shape(), 5), 0.1);
    CHECK(distillation_loss_of(*teacher, *student, target) == before);
  }
  const Tensor loss =
      compute_distillation_loss(*teacher, *student, DistillationTarget::heads, kTokenBatch, {});
  backward(loss);
  CHECK(gradient(find_in(*student, "layers.1.attention.inner_attention.query_features.weight")).defined());
  for (const char* name :
       {"layers.0.linear1.weight", "predictor.weight", "layers.0.attention.out_projection.weight"})
    CHECK_FALSE(gradient(find_in(*student, name)).defined());
}

TEST_CASE("distillation: a window of all tokens has the results of the teacher") {
  const auto teacher = make_model_with("softmax", 1);
  AutoregressiveModelOptions options = small_options("window-linear", OutputHead::categorical);
  options.encoder.attention = {
      {"window-linear", find_attention_kind("window-linear").make_options({{"window", int64_t{11}}})}};
  AutoregressiveModel student(options);
  student.initialize(2);
  student.convert(DType::float64);
  copy_shared_parameters(*teacher, student);
  CHECK(distillation_loss_of(*teacher, student, DistillationTarget::heads) == 0);
  CHECK(std::abs(distillation_loss_of(*teacher, student, DistillationTarget::logits)) < 1e-14);
}

TEST_CASE("distillation: models that do not fit are errors") {
  const auto check = [](const AutoregressiveModelOptions& student, DistillationTarget target,
                        const char* message) {
    CHECK_THROWS_WITH_AS(
        check_distillation(small_options("softmax", OutputHead::categorical), student, target), message,
        ConfigError);
  };
  AutoregressiveModelOptions options = small_options("linear", OutputHead::categorical);
  CHECK_NOTHROW(check_distillation(small_options("softmax", OutputHead::categorical), options,
                                   DistillationTarget::heads));
  options.encoder.layers = 3;
  check(options, DistillationTarget::heads, "the teacher has layers: 2, and this model 3");
  options = small_options("linear", OutputHead::categorical);
  options.vocabulary_size = 9;
  check(options, DistillationTarget::logits, "the teacher has a vocabulary of 7, and this model 9");
  check(small_options("softmax", OutputHead::categorical), DistillationTarget::attention,
        "all layers have the same attention as those of the teacher");
  check(small_options("linear"), DistillationTarget::logits,
        "logits of images are mixtures of logistics, whose divergence has no closed form");
}
