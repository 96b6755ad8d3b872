// A data set of pairs of sentences for translation. Both languages have one tokenizer. One token more than
// those of the tokenizer stands before a translation, ends each sentence and pads the batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batches/dataset.h"
#include "data/text/tokenizer.h"
#include "data/translation/sentence_pairs.h"

namespace tapeformer {

struct TranslationOptions {
  SentencePairPaths train = {}, valid = {}, test = {};
  // Number of pairs that are held out from the end of `train` for validation if `valid` has no paths.
  int64_t valid_pairs = 1000;
  std::string tokenizer_name = kSentencePieceTokenizerName;  // or "bytes", "characters" or "bpe"
  std::string sentencepiece_model = {};                      // file of a model; empty: train a model
  int64_t vocabulary = 4000;                                 // tokens of a trained SentencePiece model
  // Maximum number of tokens of a sentence in training, without the end token. Other splits may have twice as
  // many, because a model of twice the length translates them.
  int64_t max_length = 128;
  // Maximum ratio of the numbers of tokens of both sentences in training; 0: no limit.
  double max_ratio = 0;
  int64_t limit = 0;                // maximum number of pairs, from the start of the split; 0: no limit
  std::string tokenizer_file = {};  // file of "bpe", a tokenizer.json
};

// Returns the tokenizer that the options describe. A SentencePiece model is trained on both languages of the
// training files. The vocabulary of "characters" consists of the characters of all splits. Throws the errors
// of make_tokenizer(const TextOptions&, uint64_t).
std::shared_ptr<const Tokenizer> make_tokenizer(const TranslationOptions& options, uint64_t seed);

// Returns the same information as TranslationDataset::info(), without reading files.
DatasetInfo make_translation_info(const TranslationOptions& options, const std::string& name,
                                  const std::string& split, const Tokenizer& tokenizer);

// The number of pairs with a property, and the file and line of the first.
struct PairCount {
  int64_t count = 0;
  std::string first = {};
};

// The pairs and tokens of a split. Tokens are counted without end tokens.
struct TranslationReport {
  int64_t pair_count = 0;                           // pairs in the files
  PairCount empty = {}, too_long = {}, ratio = {};  // pairs that were left out
  PairCount cut = {};        // pairs with a sentence whose tokens after the maximum were left out
  PairCount identical = {};  // pairs of two equal sentences, which are kept
  int64_t source_tokens = 0, target_tokens = 0;  // of the pairs that were kept
  int64_t unknown_tokens = 0;                    // of both languages
};

// A split. Pairs with an empty sentence are left out. Training also leaves out pairs that exceed `max_length`
// or `max_ratio`. Logs the number of pairs that were left out for each reason, and the line of the first.
class TranslationDataset final : public Dataset {
 public:
  // Throws the errors of SentencePairs. Throws DataError with the line if a sentence cannot be encoded or is
  // too long for evaluation, and if no pair is left. Throws ConfigError if the split has no files.
  TranslationDataset(const TranslationOptions& options, const std::string& name, const std::string& split,
                     std::shared_ptr<const Tokenizer> tokenizer);

  // `length` is the maximum number of predictions of a sentence: its tokens and the end token. A batch is
  // padded to its longest sentence only.
  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return static_cast<int64_t>(pair_numbers_.size()); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  // Returns the number of tokens of the longer sentence of each pair, with the end token.
  std::vector<int64_t> lengths() const override;
  // Returns a batch with the following tensors. S and T are the largest numbers of tokens of a source and of
  // a target, with the end token.
  //   source (count, S) int64: a sentence, end tokens
  //   source_lengths (count,) int64: the tokens of the sentence and one end token
  //   tokens (count, T + 1) int64: an end token, a translation, end tokens
  //   mask (count, T) uint8: 1 for the predictions of the translation and of one end token, 0 for padding
  Batch batch(std::span<const int64_t> indices) const override;

  int64_t end_token() const { return info_.vocabulary - 1; }
  const TranslationReport& report() const { return report_; }
  // Return the sentences of a pair as they are in the files, and their numbers of tokens without end token.
  std::string source(int64_t i) const { return pairs_.source(pair_number(i)); }
  std::string target(int64_t i) const { return pairs_.target(pair_number(i)); }
  int64_t count_source_tokens(int64_t i) const;
  int64_t count_target_tokens(int64_t i) const;

 private:
  struct EncodedPair;

  void read_pairs(const TranslationOptions& options);
  EncodedPair encode(int64_t pair) const;
  void add_pair(int64_t pair, EncodedPair encoded, const TranslationOptions& options);
  // Logs the counts of the report, and returns them as text.
  std::string report_pairs(const TranslationOptions& options) const;
  int64_t pair_number(int64_t i) const;
  // Returns the tokens of sentence 2 i, the source of pair i, or 2 i + 1, its target.
  std::span<const int32_t> sentence(int64_t number) const;

  SentencePairs pairs_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  DatasetInfo info_;
  TranslationReport report_;
  std::vector<int64_t> pair_numbers_;  // in pairs_
  std::vector<int32_t> tokens_;        // of all sentences, the source of a pair before its target
  std::vector<int64_t> starts_ = {0};  // of the sentences in tokens_, and the size of tokens_
};

// The tokens of a sentence, without an end token.
using TokenSpan = std::span<const int32_t>;
// Returns the batch of TranslationDataset::batch() for these sentences. If `targets` is empty, the batch has
// only sources.
Batch make_translation_batch(const std::vector<TokenSpan>& sources, const std::vector<TokenSpan>& targets,
                             int64_t end_token);

}  // namespace tapeformer
