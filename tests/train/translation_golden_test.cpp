// Tests that compare translation models and the beam search with PyTorch, in float64. tests/golden/README.md
// describes the keys of translation.safetensors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/translation/beam_search.h"
#include "ops/view.h"
#include "tests/models/translation/small_translation.h"
#include "tests/train/golden.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kGoldenVocabulary = 11, kGoldenMaxLength = 16;

struct TranslationCase {
  const char* name;
  StackForm form;
  const char* attention = "softmax";  // kind of self-attention and cross-attention
};

constexpr TranslationCase kTranslationCases[] = {
    {"post_norm", StackForm::post_norm},
    {"pre_norm", StackForm::pre_norm},
    {"reversible", StackForm::reversible},
    {"pre_norm_linear", StackForm::pre_norm, "linear"},
    {"reversible_linear", StackForm::reversible, "linear"},
};

struct SearchCase {
  const char* name;
  int64_t beam, max_length;
};

constexpr SearchCase kSearchCases[] = {
    {"greedy", 1, 0}, {"beam", 4, 0}, {"short_greedy", 1, 3}, {"short_beam", 4, 3}};

std::unique_ptr<TranslationModel> read_translation_model(const SafetensorsFile& file,
                                                         const TranslationCase& one) {
  TranslationModelOptions options = small_translation(one.form, one.attention, one.attention);
  options.encoder.head_dim = 8;
  options.encoder.feedforward = 32;
  options.vocabulary_size = kGoldenVocabulary;
  options.max_length = kGoldenMaxLength;
  auto model = make_translation(options);
  for (const auto& [name, parameter] : model->parameters())
    detach(parameter).copy_from(file.read("weight." + name));
  return model;
}

Batch read_translation_batch(const SafetensorsFile& file) {
  Batch batch;
  batch.source = file.read("source");
  batch.source_lengths = file.read("source_lengths");
  batch.tokens = file.read("tokens");
  batch.mask = file.read("mask");
  return batch;
}

// Checks the loss with label smoothing, the norms of all gradients, in the order of names, and some
// gradients.
void compare_training(const TranslationModel& model, const Batch& batch, const SafetensorsFile& file,
                      const std::string& prefix) {
  const Tensor loss = model.compute_loss(batch, {.training = true});
  CHECK(loss.item() == doctest::Approx(file.read(prefix + "loss").item()).epsilon(1e-11));
  backward(loss);
  NamedTensors parameters = model.parameters();
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::vector<double> norms = file.read(prefix + "gradient_norms").to_vector();
  REQUIRE(norms.size() == parameters.size());
  int64_t compared = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const std::string& name = parameters[i].first;
    CAPTURE(name);
    const Tensor found = gradient(parameters[i].second);
    double squares = 0;
    for (const double value : found.to_vector()) squares += value * value;
    CHECK(std::abs(std::sqrt(squares) - norms[i]) < 1e-10);
    const std::string key = prefix + "gradient." + name;
    if (!file.entries().contains(key)) continue;
    ++compared;
    CHECK(max_difference(found, file.read(key)) < 1e-10);
  }
  CHECK(compared == 4);
}

void compare_search(const TranslationModel& model, const Batch& batch, const SafetensorsFile& file,
                    const std::string& prefix, const SearchCase& one) {
  const auto read = [&](const std::string& key) {
    return file.read(prefix + one.name + "." + key).to(DType::float64).to_vector();
  };
  const std::vector<double> tokens = read("tokens"), scores = read("scores"),
                            log_probabilities = read("log_probabilities"), complete = read("complete");
  TranslationDecoder decoder(model);
  const auto results =
      translate(decoder, batch.source, batch.source_lengths,
                {.beam_size = one.beam, .hypotheses = one.beam, .max_length = one.max_length});
  for (size_t i = 0; i < complete.size(); ++i) {
    CAPTURE(i);
    const auto beam = static_cast<size_t>(one.beam);
    const auto& sentence = results[i / beam];
    REQUIRE(i % beam < sentence.size());
    if (complete[i] < 0) {  // the file has no unfinished hypotheses after finished ones
      CHECK_FALSE(sentence[i % beam].is_complete);
      continue;
    }
    const TranslationHypothesis& found = sentence[i % beam];
    std::vector<double> row(found.tokens.begin(), found.tokens.end());
    row.resize(kGoldenMaxLength, -1);
    const auto expected = tokens.begin() + static_cast<std::ptrdiff_t>(i) * kGoldenMaxLength;
    CHECK(std::equal(row.begin(), row.end(), expected));
    CHECK(std::abs(found.score - scores[i]) < 1e-10);
    CHECK(std::abs(found.log_probability - log_probabilities[i]) < 1e-10);
    CHECK(found.is_complete == (complete[i] == 1));
  }
}

}  // namespace

TEST_CASE("translation models equal PyTorch in logits, losses and gradients") {
  const SafetensorsFile file = open_golden_file("translation");
  const Batch batch = read_translation_batch(file);
  for (const TranslationCase& one : kTranslationCases) {
    const std::string name = one.name, prefix = name + ".";
    CAPTURE(name);
    const auto model = read_translation_model(file, one);
    {
      const NoGradScope no_grad;
      const EncodedSource source = model->encode(batch.source, batch.source_lengths, {});
      const Tensor inputs = slice(batch.tokens, 1, 0, -1);
      CHECK(max_difference(model->forward(inputs, source, {}), file.read(prefix + "logits")) < 1e-10);
      CHECK(model->compute_loss(batch, {}).item() ==
            doctest::Approx(file.read(prefix + "nats_per_token").item()).epsilon(1e-11));
    }
    compare_training(*model, batch, file, prefix);
  }
}

TEST_CASE("the beam search finds the translations of a search without caches in PyTorch") {
  const SafetensorsFile file = open_golden_file("translation");
  const Batch batch = read_translation_batch(file);
  for (const TranslationCase& one : kTranslationCases) {
    const auto model = read_translation_model(file, one);
    for (const SearchCase& search : kSearchCases) {
      const std::string name = one.name, search_name = search.name;
      CAPTURE(name);
      CAPTURE(search_name);
      compare_search(*model, batch, file, name + ".", search);
    }
  }
}
