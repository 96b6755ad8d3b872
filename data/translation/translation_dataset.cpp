#include "data/translation/translation_dataset.h"

#include <algorithm>

#include "core/options/option_names.h"
#include "core/system/log.h"
#include "core/threads/threads.h"
#include "data/text/text_dataset.h"
#include "data/text/unknown_tokens.h"

namespace tapeformer {
namespace {

// A model translates sentences of twice the length of the longest training sentence, because a translation
// can be longer than its source and a test set cannot leave out sentences. Longer sentences are cut.
constexpr int64_t kEvaluationLengths = 2;

// Throws DataError if `pairs` training pairs are too few to hold out those of the validation.
void check_valid_pairs(const TranslationOptions& options, int64_t pairs) {
  if (options.valid.is_complete() || pairs > options.valid_pairs) return;
  throw DataError(concat_text(options.train.source, " has ", pairs, " pairs, expected more than ",
                              name_option("TranslationOptions::valid_pairs"), " = ", options.valid_pairs));
}

const SentencePairPaths& select_paths(const TranslationOptions& options, const std::string& split) {
  if (split == "test") {
    if (options.test.is_complete()) return options.test;
    throw ConfigError(name_option("TranslationOptions::test") +
                      ": the test split has no files; evaluate the split \"valid\"");
  }
  if (split == "valid" && options.valid.is_complete()) return options.valid;
  if (options.train.is_complete()) return options.train;
  throw ConfigError(name_option("TranslationOptions::train") + ": needs a file, a folder or a pattern");
}

}  // namespace

struct TranslationDataset::EncodedPair {
  std::vector<int32_t> source = {}, target = {};
  bool is_empty = false, is_identical = false;
};

std::shared_ptr<const Tokenizer> make_tokenizer(const TranslationOptions& options, uint64_t seed) {
  // Reports wrong files before the training of a model, which takes minutes for large texts.
  check_valid_pairs(options, SentencePairs(select_paths(options, "train")).size());
  TextOptions text;
  text.tokenizer_name = options.tokenizer_name;
  text.sentencepiece_model = options.sentencepiece_model;
  text.tokenizer_file = options.tokenizer_file;
  text.vocabulary = options.vocabulary;
  text.unknown_characters = UnknownCharacters::token;
  std::vector<std::string> others;
  for (const SentencePairPaths& paths : {options.valid, options.test})
    if (paths.is_complete()) others.insert(others.end(), {paths.source, paths.target});
  return make_joint_tokenizer(text, {options.train.source, options.train.target}, others, seed);
}

DatasetInfo make_translation_info(const TranslationOptions& options, const std::string& name,
                                  const std::string& split, const Tokenizer& tokenizer) {
  const int64_t longest = kEvaluationLengths * options.max_length + 1;
  return {.name = name,
          .split = split,
          .vocabulary = tokenizer.vocabulary_size() + 1,
          .length = split == "train" ? options.max_length + 1 : longest,
          .longest_split_length = longest};
}

TranslationDataset::TranslationDataset(const TranslationOptions& options, const std::string& name,
                                       const std::string& split, std::shared_ptr<const Tokenizer> tokenizer)
    : pairs_(select_paths(options, split)),
      tokenizer_(std::move(tokenizer)),
      info_(make_translation_info(options, name, split, *tokenizer_)) {
  read_pairs(options);
  const std::string reasons = report_pairs(options);
  if (size() == 0) throw DataError(concat_text(name, " ", split, ": no pair is left", reasons));
}

std::string TranslationDataset::report_pairs(const TranslationOptions& options) const {
  const std::string set = info_.name + " " + info_.split;
  std::string reasons;
  const auto warn = [&](const PairCount& pairs, const std::string& problem) {
    if (pairs.count == 0) return;
    const std::string text = concat_text(pairs.count, " of ", report_.pair_count, " pairs ", problem,
                                         ", the first in ", pairs.first);
    log_warning(set, ": ", text);
    reasons += (reasons.empty() ? ": " : "; ") + text;
  };
  warn(report_.empty, "have an empty sentence and are left out");
  warn(report_.too_long,
       concat_text("have a sentence of more than ", name_option("TranslationOptions::max_length"), " = ",
                   options.max_length, " tokens and are left out"));
  warn(report_.ratio,
       concat_text("have lengths whose ratio exceeds ", name_option("TranslationOptions::max_ratio"), " = ",
                   options.max_ratio, " and are left out"));
  warn(report_.cut, concat_text("have a sentence of more than ", info_.length - 1, " tokens, twice ",
                                name_option("TranslationOptions::max_length"), ", and are cut"));
  warn(report_.identical, "have the same sentence in both languages");
  if (report_.unknown_tokens > 0)
    log_warning(set, ": ", report_.unknown_tokens, " of ", tokens_.size(),
                " tokens stand for unknown characters, which cannot be translated");
  return reasons;
}

// Encodes the pairs in parallel and adds them in order.
void TranslationDataset::read_pairs(const TranslationOptions& options) {
  constexpr int64_t kBlockPairs = 1 << 14, kGrain = 64;
  const bool shares_train = !options.valid.is_complete() && info_.split != "test";
  const int64_t held_out = shares_train ? options.valid_pairs : 0, split_point = pairs_.size() - held_out;
  const bool is_held_out = shares_train && info_.split == "valid";
  if (shares_train) check_valid_pairs(options, pairs_.size());
  const int64_t first = is_held_out ? split_point : 0, last = is_held_out ? pairs_.size() : split_point;
  std::vector<EncodedPair> block;
  for (int64_t begin = first; begin < last; begin += kBlockPairs) {
    block.assign(static_cast<size_t>(std::min(kBlockPairs, last - begin)), {});
    parallel_for(static_cast<int64_t>(block.size()), kGrain, [&](int64_t low, int64_t high) {
      for (int64_t i = low; i < high; ++i) block[static_cast<size_t>(i)] = encode(begin + i);
    });
    for (size_t i = 0; i < block.size(); ++i) {
      if (options.limit > 0 && size() == options.limit) return;
      add_pair(begin + static_cast<int64_t>(i), std::move(block[i]), options);
    }
  }
}

TranslationDataset::EncodedPair TranslationDataset::encode(int64_t pair) const {
  EncodedPair encoded;
  const std::string source = pairs_.source(pair), target = pairs_.target(pair);
  encoded.is_empty = is_blank(source) || is_blank(target);
  if (encoded.is_empty) return encoded;
  encoded.is_identical = source == target;
  const auto encode_sentence = [&](const std::string& text, auto locate) {
    try {
      return tokenizer_->encode(text);
    } catch (const EncodingError& error) {
      throw EncodingError(error.problem, error.offset, concat_text(locate(), ": ", error.what()));
    }
  };
  encoded.source = encode_sentence(source, [&] { return pairs_.source_location(pair); });
  encoded.target = encode_sentence(target, [&] { return pairs_.target_location(pair); });
  return encoded;
}

void TranslationDataset::add_pair(int64_t pair, EncodedPair encoded, const TranslationOptions& options) {
  const auto count = [&](PairCount& pairs) {
    if (pairs.count++ == 0) pairs.first = pairs_.source_location(pair);
  };
  ++report_.pair_count;
  if (encoded.is_empty) return count(report_.empty);
  const auto source = static_cast<int64_t>(encoded.source.size()),
             target = static_cast<int64_t>(encoded.target.size());
  const auto [shorter, longer] = std::minmax(source, target);
  const bool is_from_training_files =
      info_.split == "train" || (info_.split == "valid" && !options.valid.is_complete());
  if (is_from_training_files) {
    if (longer > options.max_length) return count(report_.too_long);
    if (options.max_ratio > 0 &&
        static_cast<double>(longer) > options.max_ratio * static_cast<double>(shorter))
      return count(report_.ratio);
  } else if (longer >= info_.length) {
    count(report_.cut);
    for (std::vector<int32_t>* const tokens : {&encoded.source, &encoded.target})
      tokens->resize(std::min(tokens->size(), static_cast<size_t>(info_.length) - 1));
  }
  if (encoded.is_identical) count(report_.identical);
  pair_numbers_.push_back(pair);
  for (const std::vector<int32_t>& tokens : {std::cref(encoded.source), std::cref(encoded.target)}) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    starts_.push_back(static_cast<int64_t>(tokens_.size()));
    report_.unknown_tokens += count_unknown(*tokenizer_, tokens);
  }
  report_.source_tokens += static_cast<int64_t>(encoded.source.size());
  report_.target_tokens += static_cast<int64_t>(encoded.target.size());
}

int64_t TranslationDataset::pair_number(int64_t i) const {
  const int64_t index[] = {i};
  check_indices(index);
  return pair_numbers_[static_cast<size_t>(i)];
}

std::span<const int32_t> TranslationDataset::sentence(int64_t number) const {
  const auto i = static_cast<size_t>(number);
  return std::span(tokens_).subspan(static_cast<size_t>(starts_[i]),
                                    static_cast<size_t>(starts_[i + 1] - starts_[i]));
}

int64_t TranslationDataset::count_source_tokens(int64_t i) const {
  return static_cast<int64_t>(sentence(2 * i).size());
}

int64_t TranslationDataset::count_target_tokens(int64_t i) const {
  return static_cast<int64_t>(sentence(2 * i + 1).size());
}

std::vector<int64_t> TranslationDataset::lengths() const {
  std::vector<int64_t> lengths;
  lengths.reserve(pair_numbers_.size());
  for (int64_t i = 0; i < size(); ++i)
    lengths.push_back(std::max(count_source_tokens(i), count_target_tokens(i)) + 1);
  return lengths;
}

Batch TranslationDataset::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  std::vector<TokenSpan> sources, targets;
  for (const int64_t i : indices) {
    sources.push_back(sentence(2 * i));
    targets.push_back(sentence(2 * i + 1));
  }
  return make_translation_batch(sources, targets, end_token());
}

Batch make_translation_batch(const std::vector<TokenSpan>& sources, const std::vector<TokenSpan>& targets,
                             int64_t end_token) {
  const auto longest_of = [](const std::vector<TokenSpan>& sentences) {
    int64_t longest = 0;
    for (const TokenSpan& one : sentences) longest = std::max(longest, static_cast<int64_t>(one.size()));
    return longest;
  };
  const auto count = static_cast<int64_t>(sources.size());
  const auto make_tokens = [&](int64_t width) {
    return Tensor::full({count, width}, static_cast<double>(end_token), DType::int64);
  };
  Batch batch;
  const int64_t source_width = longest_of(sources) + 1;
  batch.source = make_tokens(source_width);
  batch.source_lengths = Tensor::empty({count}, DType::int64);
  for (int64_t row = 0; row < count; ++row) {
    const TokenSpan& source = sources[static_cast<size_t>(row)];
    std::copy(source.begin(), source.end(), batch.source.data<int64_t>() + row * source_width);
    batch.source_lengths.data<int64_t>()[row] = static_cast<int64_t>(source.size()) + 1;
  }
  if (targets.empty() && count > 0) return batch;
  const int64_t width = longest_of(targets) + 1;
  batch.tokens = make_tokens(width + 1);
  batch.mask = Tensor::zeros({count, width}, DType::uint8);
  for (int64_t row = 0; row < count; ++row) {
    const TokenSpan& target = targets[static_cast<size_t>(row)];
    std::copy(target.begin(), target.end(), batch.tokens.data<int64_t>() + row * (width + 1) + 1);
    std::fill_n(batch.mask.data<uint8_t>() + row * width, target.size() + 1, uint8_t{1});
  }
  return batch;
}

}  // namespace tapeformer
