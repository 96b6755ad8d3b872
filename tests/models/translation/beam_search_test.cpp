#include "models/translation/beam_search.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/base/errors.h"
#include "models/translation/decoder.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/models/translation/small_translation.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kVocabulary = 7, kEnd = kVocabulary - 1;

// Returns a model whose distributions are far from uniform.
std::unique_ptr<TranslationModel> sharp_model(const TranslationModelOptions& options, uint64_t seed = 3) {
  auto model = make_translation(options, seed);
  for (const auto& [name, parameter] : model->parameters())
    if (parameter.rank() == 2) detach(parameter).add_scaled(detach(parameter), 1.5);
  return model;
}

// Returns the natural logarithms of the probabilities of the tokens after a prefix, without any cache.
std::vector<double> next_log_probabilities(const TranslationModel& model, const EncodedSource& source,
                                           const std::vector<int64_t>& tokens) {
  const NoGradScope no_grad;
  const auto length = static_cast<int64_t>(tokens.size()) + 1;
  const Tensor inputs = Tensor::full({1, length}, static_cast<double>(kEnd), DType::int64);
  std::copy(tokens.begin(), tokens.end(), inputs.data<int64_t>() + 1);
  const std::vector<double> all = log_softmax(model.forward(inputs, source, {})).to_vector();
  return {all.end() - kVocabulary, all.end()};
}

// Appends all complete translations of at most `longest` tokens that begin with `prefix`.
void enumerate(const TranslationModel& model, const EncodedSource& source, std::vector<int64_t> prefix,
               double log_probability, int64_t longest, double alpha,
               std::vector<TranslationHypothesis>& all) {
  const std::vector<double> next = next_log_probabilities(model, source, prefix);
  const auto length = static_cast<int64_t>(prefix.size()) + 1;
  const double end = log_probability + next[kEnd];
  all.push_back({prefix, end, end / compute_length_penalty(length, alpha), true});
  if (length == longest) return;
  prefix.push_back(0);
  for (int64_t token = 0; token < kEnd; ++token) {
    prefix.back() = token;
    enumerate(model, source, prefix, log_probability + next[static_cast<size_t>(token)], longest, alpha, all);
  }
}

std::vector<std::vector<TranslationHypothesis>> translate(const TranslationModel& model, const Tensor& source,
                                                          const Tensor& lengths,
                                                          const BeamSearchOptions& options) {
  TranslationDecoder decoder(model);
  return tapeformer::translate(decoder, source, lengths, options);
}

Tensor row_of(const Tensor& x, int64_t row) {
  return slice(x, 0, row, row + 1).clone();
}

struct StateChoice {
  std::string kind;
  OptionValues options;
};

// Returns all kinds, and kinds whose convolutions have histories of no token and of one token.
std::vector<StateChoice> list_state_choices() {
  std::vector<StateChoice> choices;
  for (const std::string& kind : translation_kinds()) choices.push_back({kind, test_options(kind)});
  const auto add = [&](const std::string& kind,
                       const std::vector<std::pair<std::string, OptionValue>>& options) {
    choices.push_back({kind, find_attention_kind(kind).make_options(options)});
  };
  add("gated-linear", {{"preset", std::string("lightning")}});
  add("gated-delta", {{"conv", int64_t{0}}});
  for (const char* kind : {"gated-linear", "gated-delta", "linear", "softmax"})
    for (const int64_t conv : {1, 2}) add(kind, {{"conv", conv}});
  return choices;
}

}  // namespace

TEST_CASE("decoding token by token equals the full decoder at each position") {
  for (const std::string& kind : translation_kinds()) {
    // In these kinds, the keys of a query depend on the later tokens of the sequence.
    if (kind == "lsh" || kind == "routing") continue;
    for (const StackForm form : kStackForms)
      for (const char* cross : {"softmax", "linear"}) {
        CAPTURE(kind);
        CAPTURE(cross);
        CAPTURE(static_cast<int>(form));
        TranslationModelOptions options = small_translation(form, kind, cross);
        options.shared_embeddings = form != StackForm::reversible;
        const auto model = make_translation(options);
        const Batch batch = translation_batch({3, 5, 1}, {39, 39, 39}, kVocabulary);
        const NoGradScope no_grad;
        const EncodedSource source = model->encode(batch.source, batch.source_lengths, {});
        const Tensor inputs = slice(batch.tokens, 1, 0, -1), expected = model->forward(inputs, source, {});
        TranslationDecoder decoder(*model);
        decoder.start(source, 1, 48);  // the caches grow twice
        double worst = 0;
        for (int64_t t = 0; t < inputs.size(1); ++t) {
          const Tensor column = reshape(slice(inputs, 1, t, t + 1), {3}).clone();
          const Tensor wanted = reshape(slice(expected, 1, t, t + 1), {3, kVocabulary});
          worst = max_error(worst, max_difference(decoder.step(column), wanted));
        }
        CHECK(worst < 1e-11);
      }
  }
}

TEST_CASE("copied rows and selected sentences continue as the original ones") {
  for (const auto& [kind, values] : list_state_choices()) {
    CAPTURE(kind);
    TranslationModelOptions options = small_translation(StackForm::pre_norm, kind);
    options.encoder.attention = {{kind, values}};
    const auto model = make_translation(options);
    const Batch batch = translation_batch({3, 5, 1}, {6, 6, 6}, kVocabulary);
    const NoGradScope no_grad;
    const EncodedSource source = model->encode(batch.source, batch.source_lengths, {});
    TranslationDecoder decoder(*model);
    decoder.start(source, 2, 16);
    const auto step = [&](std::vector<double> tokens) {
      return decoder.step(Tensor::from_vector(tokens, {static_cast<int64_t>(tokens.size())}).to(DType::int64))
          .clone();
    };
    step({6, 6, 6, 6, 6, 6});
    step({0, 1, 2, 3, 4, 5});
    const Tensor before = step({1, 2, 3, 4, 5, 0});
    const std::vector<RowCopy> copies = {{0, 1}, {5, 4}};
    decoder.copy_rows(copies);
    const Tensor doubled = step({1, 1, 2, 2, 3, 3});
    for (const int64_t first : {0, 4})
      CHECK(max_difference(row_of(doubled, first), row_of(doubled, first + 1)) < 1e-12);
    if (kind == "softmax") CHECK(max_difference(row_of(doubled, 2), row_of(doubled, 3)) > 1e-6);
    const std::vector<int64_t> kept = {2, 0};
    decoder.select_sources(kept);
    CHECK(decoder.row_count() == 4);
    const Tensor selected = step({4, 5, 1, 2});
    // The same tokens in a new decoder, row by row.
    const std::vector<std::vector<double>> histories = {
        {6, 5, 0, 3, 4}, {6, 5, 0, 3, 5}, {6, 0, 1, 1, 1}, {6, 0, 1, 1, 2}};
    for (size_t r = 0; r < histories.size(); ++r) {
      const int64_t sentence = r < 2 ? 2 : 0;
      const EncodedSource own{row_of(source.states, sentence), row_of(source.lengths, sentence)};
      const Tensor tokens = Tensor::from_vector(histories[r], {1, 5}).to(DType::int64);
      const Tensor all = model->forward(tokens, own, {});
      CHECK(max_difference(reshape(slice(all, 1, 4, 5), {1, kVocabulary}),
                           row_of(selected, static_cast<int64_t>(r))) < 1e-11);
    }
  }
}

TEST_CASE("beam 1 is greedy decoding") {
  for (const char* kind : {"softmax", "linear", "lsh"})
    for (uint64_t seed = 1; seed < 6; ++seed) {
      const auto model = sharp_model(small_translation(StackForm::pre_norm, kind), seed);
      const Batch batch = translation_batch({3, 5, 1, 7}, {1, 1, 1, 1}, kVocabulary, seed);
      const auto results = translate(*model, batch.source, batch.source_lengths, {.beam_size = 1});
      for (int64_t b = 0; b < 4; ++b) {
        const NoGradScope no_grad;
        const EncodedSource source =
            model->encode(row_of(batch.source, b), row_of(batch.source_lengths, b), {});
        std::vector<int64_t> tokens;
        bool complete = false;
        while (!complete && tokens.size() < 48) {
          const auto next = next_log_probabilities(*model, source, tokens);
          const auto best = std::max_element(next.begin(), next.end()) - next.begin();
          complete = best == kEnd;
          if (!complete) tokens.push_back(best);
        }
        const TranslationHypothesis& found = results[static_cast<size_t>(b)].front();
        CHECK(found.tokens == tokens);
        CHECK(found.is_complete == complete);
      }
    }
}

TEST_CASE("a wide beam finds the best 50 of all translations in order, and beam 4 one of them") {
  constexpr int64_t kLongest = 4;
  for (const double alpha : {0.0, 0.6, 1.0})
    for (uint64_t seed = 1; seed < 4; ++seed) {
      const auto model = sharp_model(small_translation(), seed);
      const Batch batch = translation_batch({4}, {1}, kVocabulary, seed);
      std::vector<TranslationHypothesis> all;
      const NoGradScope no_grad;
      enumerate(*model, model->encode(batch.source, batch.source_lengths, {}), {}, 0, kLongest, alpha, all);
      CHECK(all.size() == 1 + 6 + 36 + 216);
      std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
      const auto search = [&](int64_t beam, int64_t count) {
        return translate(
                   *model, batch.source, batch.source_lengths,
                   {.beam_size = beam, .length_penalty = alpha, .hypotheses = count, .max_length = kLongest})
            .front();
      };
      const auto wide = search(300, 50);
      REQUIRE(wide.size() == 50);
      for (size_t i = 0; i < 50; ++i) {
        CHECK(wide[i].tokens == all[i].tokens);
        CHECK(wide[i].score == doctest::Approx(all[i].score).epsilon(1e-10));
        CHECK(wide[i].log_probability == doctest::Approx(all[i].log_probability).epsilon(1e-10));
      }
      const auto narrow = search(4, 1).front();
      CHECK(std::any_of(all.begin(), all.begin() + 50,
                        [&](const auto& one) { return one.tokens == narrow.tokens; }));
      CHECK(narrow.score <= all.front().score + 1e-12);
    }
}

TEST_CASE("the translation of a sentence does not depend on its batch") {
  const auto model = sharp_model(small_translation(StackForm::reversible));
  const std::vector<int64_t> lengths = {3, 9, 1, 6, 2, 7, 4, 8};
  const Batch batch = translation_batch(lengths, lengths, kVocabulary);
  const auto together = translate(*model, batch.source, batch.source_lengths, {.hypotheses = 4});
  for (int64_t b = 0; b < 8; ++b) {
    const int64_t s = batch.source_lengths.data<int64_t>()[b];
    const Tensor own = slice(row_of(batch.source, b), 1, 0, s).clone();
    const auto alone = translate(*model, own, row_of(batch.source_lengths, b), {.hypotheses = 4}).front();
    const auto& shared = together[static_cast<size_t>(b)];
    REQUIRE(alone.size() == shared.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      CHECK(alone[i].tokens == shared[i].tokens);
      CHECK(alone[i].score == doctest::Approx(shared[i].score).epsilon(1e-12));
    }
  }
}

TEST_CASE("a translation that never ends stops at the maximum length and is marked") {
  const auto model = make_translation(small_translation());
  detach(model->predictor.bias).fill(0);
  detach(model->predictor.bias).data<double>()[kEnd] = -INFINITY;
  const Batch batch = translation_batch({3, 2}, {1, 1}, kVocabulary);
  for (const int64_t beam : {1, 4}) {
    const auto results =
        translate(*model, batch.source, batch.source_lengths, {.beam_size = beam, .max_length = 9});
    for (const auto& result : results) {
      REQUIRE(result.size() == 1);
      CHECK(result.front().tokens.size() == 9);
      CHECK_FALSE(result.front().is_complete);
    }
  }
  CHECK(translate(*model, batch.source, batch.source_lengths, {}).front().front().tokens.size() == 48);
}

TEST_CASE("a list has all hypotheses also at the maximum length: unfinished ones follow the finished ones") {
  const auto model = sharp_model(small_translation());
  const Batch batch = translation_batch({3, 5, 1, 7}, {1, 1, 1, 1}, kVocabulary);
  int mixed = 0;
  for (const int64_t longest : {1, 2, 3}) {
    const auto search = [&](int64_t count) {
      return translate(*model, batch.source, batch.source_lengths,
                       {.beam_size = 4, .hypotheses = count, .max_length = longest});
    };
    const auto lists = search(4), best = search(1);
    for (size_t b = 0; b < lists.size(); ++b) {
      const auto& list = lists[b];
      REQUIRE(list.size() == 4);
      CHECK(list.front().tokens == best[b].front().tokens);
      const auto later = [](const auto& x, const auto& y) {
        return x.is_complete != y.is_complete ? x.is_complete : x.score > y.score;
      };
      CHECK(std::is_sorted(list.begin(), list.end(), later));
      mixed += list.front().is_complete && !list.back().is_complete;
      for (const auto& one : list)
        if (!one.is_complete) CHECK(static_cast<int64_t>(one.tokens.size()) == longest);
    }
  }
  CHECK(mixed > 0);
}

TEST_CASE("logits that are not finite and impossible options are errors") {
  const auto model = make_translation(small_translation());
  const Batch batch = translation_batch({3}, {1}, kVocabulary);
  CHECK_THROWS_AS(translate(*model, batch.source, batch.source_lengths, {.beam_size = 2, .hypotheses = 3}),
                  ShapeError);
  CHECK(translate(*model, Tensor::zeros({0, 3}, DType::int64), Tensor::zeros({0}, DType::int64), {}).empty());
  detach(model->predictor.bias).fill(NAN);
  CHECK_THROWS_AS(translate(*model, batch.source, batch.source_lengths, {}), DivergenceError);
}
