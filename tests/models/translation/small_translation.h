// Small translation models and batches for tests.
#pragma once

#include "models/translation/model.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

namespace tapeformer::test {

enum class StackForm { post_norm, pre_norm, reversible, reversible_second };
inline constexpr StackForm kStackForms[] = {StackForm::post_norm, StackForm::pre_norm, StackForm::reversible,
                                            StackForm::reversible_second};

inline AttentionPattern cross_pattern(const std::string& kind) {
  return {{kind, find_attention_kind(kind).default_options()}};
}

inline TranslationModelOptions small_translation(StackForm form = StackForm::pre_norm,
                                                 const std::string& attention = "softmax",
                                                 const std::string& cross = "softmax") {
  TranslationModelOptions options;
  options.encoder = small_encoder(attention);
  options.encoder.pre_norm = form != StackForm::post_norm;
  options.encoder.reversible = form == StackForm::reversible || form == StackForm::reversible_second;
  options.encoder.doubled_input = form != StackForm::reversible_second;
  options.encoder.cross_attention = cross_pattern(cross);
  options.vocabulary_size = 7;
  options.max_length = 48;
  return options;
}

// Returns kinds of self-attention that translation models can have.
inline std::vector<std::string> translation_kinds() {
  std::vector<std::string> names;
  for (const std::string& name :
       kinds_with([](const AttentionCapabilities& c) { return c.causal && c.length_masks && c.reversible; }))
    if (const AttentionKind& kind = find_attention_kind(name);
        kind.get_segment_memory_size(kind.make_options(kind.test_options)).token_span() == 0)
      names.push_back(name);
  return names;
}

// Returns random sentences with the given numbers of tokens, without the end tokens.
inline Batch translation_batch(const std::vector<int64_t>& source, const std::vector<int64_t>& target,
                               int64_t vocabulary, uint64_t salt = 0) {
  const auto count = static_cast<int64_t>(source.size()), end = vocabulary - 1;
  const int64_t longest_source = *std::max_element(source.begin(), source.end()) + 1,
                longest = *std::max_element(target.begin(), target.end()) + 1;
  Batch batch;
  batch.source = Tensor::full({count, longest_source}, static_cast<double>(end), DType::int64);
  batch.source_lengths = Tensor::empty({count}, DType::int64);
  batch.tokens = Tensor::full({count, longest + 1}, static_cast<double>(end), DType::int64);
  batch.mask = Tensor::zeros({count, longest}, DType::uint8);
  const RandomStream stream(31, "sentences", salt);
  uint64_t draws = 0;
  const auto draw = [&] {
    return static_cast<int64_t>(stream.uniform_below(draws++, static_cast<uint64_t>(end)));
  };
  for (int64_t b = 0; b < count; ++b) {
    const int64_t s = source[static_cast<size_t>(b)], t = target[static_cast<size_t>(b)];
    for (int64_t i = 0; i < s; ++i) batch.source.data<int64_t>()[b * longest_source + i] = draw();
    for (int64_t i = 0; i < t; ++i) batch.tokens.data<int64_t>()[b * (longest + 1) + i + 1] = draw();
    for (int64_t i = 0; i <= t; ++i) batch.mask.data<uint8_t>()[b * longest + i] = 1;
    batch.source_lengths.data<int64_t>()[b] = s + 1;
  }
  return batch;
}

// Makes a model with float64 parameters.
inline std::unique_ptr<TranslationModel> make_translation(const TranslationModelOptions& options,
                                                          uint64_t seed = 3) {
  auto model = std::make_unique<TranslationModel>(options);
  model->initialize(seed);
  model->convert(DType::float64);
  return model;
}

}  // namespace tapeformer::test
