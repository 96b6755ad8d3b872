#include "models/translation/model.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/models/parameter_gradients.h"
#include "tests/models/translation/small_translation.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kWords = 7;

Batch small_batch() {
  return translation_batch({3, 5, 1}, {4, 2, 5}, kWords);
}

// The layers of a reversible decoder without run_reversible(), so that the tape stores all activations.
Tensor stored_decoder(const Encoder& decoder, const Tensor& x, const EncodedSource& source,
                      const ForwardContext& context) {
  Tensor x1 = decoder.options().doubled_input ? x : Tensor::zeros(x.shape(), x.dtype()), x2 = x;
  for (const auto& layer : decoder.layers) {
    x1 = add(x1, layer->run_branch(ResidualBranch::attention, x2, {}, context, {}, 0));
    x2 = add(x2, layer->run_branch(ResidualBranch::cross_attention, x1, {}, context, source, 0));
    const Tensor rows = reshape(x2, {x2.size(0) * x2.size(1), x2.size(2)});
    const Tensor z = add(
        x1, reshape(layer->run_branch(ResidualBranch::feedforward, rows, {}, context, {}, 0), x1.shape()));
    x1 = x2;
    x2 = z;
  }
  return decoder.norm.forward(mul(add(x1, x2), 0.5));
}

}  // namespace

TEST_CASE("gradients of the translation loss equal central differences in every form") {
  for (const StackForm form : kStackForms)
    for (const char* cross : {"softmax", "linear"})
      for (const bool shared : {true, false}) {
        CAPTURE(static_cast<int>(form));
        CAPTURE(cross);
        CAPTURE(shared);
        TranslationModelOptions options = small_translation(form, shared ? "softmax" : "linear", cross);
        options.shared_embeddings = shared;
        options.positions = shared ? AddedPositions::sinusoidal : AddedPositions::learned;
        options.encoder.dropout = 0.1;
        options.loss_chunks = shared ? 1 : 3;
        const auto model = make_translation(options);
        const Batch batch = small_batch();
        check_parameter_gradients(
            *model, [&] { return model->compute_loss(batch, {.training = true, .seed = 5, .step = 2}); });
      }
}

TEST_CASE("every kind of self-attention trains in every form") {
  for (const std::string& kind : translation_kinds())
    for (const StackForm form : kStackForms) {
      CAPTURE(kind);
      const auto model = make_translation(small_translation(form, kind));
      backward(model->compute_loss(small_batch(), {.training = true, .seed = 5, .step = 2}));
      for (const auto& [bound_name, parameter] : model->parameters()) {
        const std::string& name = bound_name;
        CHECK_MESSAGE(gradient(parameter).defined(), name);
      }
    }
}

TEST_CASE("a reversible decoder has the values and gradients of its layers with a full tape") {
  for (const char* kind : {"softmax", "linear", "lsh"}) {
    CAPTURE(kind);
    const bool is_linear = kind == std::string("linear");
    TranslationModelOptions options =
        small_translation(is_linear ? StackForm::reversible_second : StackForm::reversible, kind);
    options.encoder.layers = 5;
    options.encoder.dropout = 0.2;
    const auto model = make_translation(options);
    const Tensor x = set_requires_grad(normal({3, 6, 8}, 1)),
                 states = set_requires_grad(normal({3, 4, 8}, 2)), cotangent = normal({3, 6, 8}, 3);
    const Tensor lengths = Tensor::full({3}, 3, DType::int64);
    StoredDecisions decisions;
    ForwardContext context{.training = true, .is_prefix = true, .seed = 5, .step = 2};
    context.decisions = &decisions;
    std::vector<Tensor> leaves = strip_names(model->decoder.parameters());
    leaves.insert(leaves.end(), {x, states});
    std::vector<std::vector<Tensor>> found;
    for (const bool stored : {true, false}) {
      const EncodedSource source{mul(states, 2), lengths};
      const Tensor y = stored ? stored_decoder(model->decoder, x, source, context)
                              : model->decoder.forward(x, {}, context, source);
      backward(y, cotangent);
      found.push_back({detach(y)});
      for (const Tensor& leaf : leaves) {
        found.back().push_back(gradient(leaf));
        set_gradient(leaf, {});
      }
    }
    for (size_t i = 0; i < found[0].size(); ++i) CHECK(max_difference(found[0][i], found[1][i]) < 1e-10);
  }
}

TEST_CASE("the memory of reversible stacks does not grow with their depth") {
  const auto measure = [](int64_t layers, bool reversible) {
    TranslationModelOptions options =
        small_translation(reversible ? StackForm::reversible : StackForm::pre_norm);
    options.encoder.layers = layers;
    options.max_length = 64;
    const auto model = make_translation(options);
    const Batch batch = translation_batch(std::vector<int64_t>(16, 60), std::vector<int64_t>(16, 60), kWords);
    const auto run = [&] { backward(model->compute_loss(batch, {.training = true})); };
    run();  // allocates the gradients
    CachingAllocator& memory = get_device_allocator();
    const int64_t before = memory.stats().active_bytes;
    memory.reset_peak();
    run();
    return memory.stats().peak_bytes - before;
  };
  const int64_t shallow = measure(2, true), deep = measure(12, true);
  MESSAGE("2 layers: " << shallow << " bytes, 12 layers: " << deep << "; stored: " << measure(2, false)
                       << ", " << measure(12, false));
  CHECK(static_cast<double>(deep) < 1.02 * static_cast<double>(shallow));
  CHECK(measure(12, false) > 4 * shallow);
}

TEST_CASE("padding and other sentences of a batch do not change the losses of a sentence") {
  for (const char* kind : {"softmax", "linear", "gated-delta", "lsh"})
    for (const char* cross : {"softmax", "linear"}) {
      CAPTURE(kind);
      const auto model = make_translation(small_translation(StackForm::pre_norm, kind, cross));
      const Batch batch = translation_batch({3, 40, 9}, {30, 21, 42}, kWords);
      const Tensor all = model->compute_token_losses(batch);
      for (int64_t b = 0; b < 3; ++b) {
        const int64_t s = batch.source_lengths.data<int64_t>()[b];
        int64_t t = 0;
        while (t < batch.mask.size(1) && batch.mask.data<uint8_t>()[b * batch.mask.size(1) + t] != 0) ++t;
        Batch one;
        one.source = slice(slice(batch.source, 0, b, b + 1), 1, 0, s).clone();
        one.source_lengths = slice(batch.source_lengths, 0, b, b + 1);
        one.tokens = slice(slice(batch.tokens, 0, b, b + 1), 1, 0, t + 1).clone();
        one.mask = slice(slice(batch.mask, 0, b, b + 1), 1, 0, t).clone();
        const Tensor expected = slice(slice(all, 0, b, b + 1), 1, 0, t);
        CHECK(max_difference(model->compute_token_losses(one), contiguous(expected)) < 1e-12);
        double padding = 0;
        for (int64_t i = t; i < all.size(1); ++i) padding += all.data<double>()[b * all.size(1) + i];
        CHECK(padding == 0);
      }
    }
}

TEST_CASE(
    "the evaluation loss is the mean of the losses of tokens, and label smoothing acts in training only") {
  TranslationModelOptions options = small_translation();
  options.label_smoothing = 0.3;
  const auto model = make_translation(options);
  const Batch batch = small_batch();
  const double mean = sum(model->compute_token_losses(batch)).item() / 14;
  CHECK(model->compute_loss(batch, {}).item() == doctest::Approx(mean).epsilon(1e-12));
  CHECK(model->compute_loss(batch, {.training = true, .disable_dropout = true}).item() !=
        doctest::Approx(mean).epsilon(1e-3));
}

TEST_CASE("slices of a batch draw the random numbers of the whole batch") {
  TranslationModelOptions options = small_translation(StackForm::post_norm);
  options.encoder.dropout = options.encoder.attention_dropout = 0.3;
  const auto model = make_translation(options);
  const Batch batch = small_batch();
  const auto losses_of = [&](const Batch& part, int64_t first) {
    const ForwardContext context{.training = true, .seed = 5, .step = 2, .first_example = first};
    return model->forward(slice(part.tokens, 1, 0, -1),
                          model->encode(part.source, part.source_lengths, context), context);
  };
  const Tensor whole = losses_of(batch, 0);
  for (int64_t b = 0; b < 3; ++b) {
    Batch part;
    part.source = slice(batch.source, 0, b, b + 1);
    part.source_lengths = slice(batch.source_lengths, 0, b, b + 1);
    part.tokens = slice(batch.tokens, 0, b, b + 1);
    CHECK(max_difference(losses_of(part, b), slice(whole, 0, b, b + 1)) < 1e-12);
  }
}

TEST_CASE("models of WMT'14 have the sizes of the papers") {
  const auto count = [](int64_t width, bool shared) {
    TranslationModelOptions options;
    options.encoder = {.layers = 6, .heads = width / 64, .head_dim = 64, .feedforward = 4 * width};
    options.encoder.attention = {{"softmax", find_attention_kind("softmax").default_options()}};
    options.encoder.cross_attention = cross_pattern("softmax");
    options.encoder.projection_biases = false;
    options.vocabulary_size = 33300;
    options.max_length = 2048;
    options.shared_embeddings = shared;
    options.positions = shared ? AddedPositions::sinusoidal : AddedPositions::learned;
    return static_cast<double>(count_parameters(TranslationModel(options))) / 1e6;
  };
  CHECK(count(512, true) == doctest::Approx(61.2).epsilon(1e-3));
  CHECK(count(512, false) == doctest::Approx(97.4).epsilon(1e-3));
  CHECK(count(1024, true) == doctest::Approx(210.4).epsilon(1e-3));
  CHECK(count(1024, false) == doctest::Approx(282.8).epsilon(1e-3));
}

TEST_CASE("kinds that cannot translate are refused with the reason") {
  const auto problems_of = [](const TranslationModelOptions& options) {
    std::string text;
    for (const OptionProblem& problem : find_option_problems(options)) text += problem.message + "\n";
    return text;
  };
  CHECK(problems_of(small_translation()) == "");
  CHECK(problems_of(small_translation(StackForm::pre_norm, "softmax", "lsh")).find("lsh") !=
        std::string::npos);
  TranslationModelOptions none = small_translation();
  none.encoder.cross_attention.clear();
  CHECK_THROWS_AS(TranslationModel{none}, OptionError);
}
