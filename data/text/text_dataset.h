// Data sets for language models, whose examples are windows of a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batches/dataset.h"
#include "data/text/tokenizer.h"

namespace tapeformer {

struct TextOptions {
  std::string path;                      // a file, a folder or a pattern; see list_text_files()
  std::string tokenizer_name = "bytes";  // "bytes", "characters", "sentencepiece" or "bpe"
  std::string sentencepiece_model;       // file of a SentencePiece model; empty: train a model
  std::string tokenizer_file;            // file of "bpe", a tokenizer.json
  int64_t vocabulary = 2000;             // number of tokens of a trained SentencePiece model
  // Encoding of characters that are not in the vocabulary of sentencepiece_model or tokenizer_file.
  UnknownCharacters unknown_characters = UnknownCharacters::refuse;
  int64_t sequence_length = 256;  // number of predictions per window
  // Fractions of the text in `path` for validation and testing. The test split is the last part of the text,
  // and the validation split is the part before the test split.
  double valid_share = 0.05, test_share = 0.05;
  // Paths of the validation and test texts. If valid_path is set, valid_share is ignored. If test_path is
  // set, test_share is ignored.
  std::string valid_path, test_path;
  // Number of predictions that an evaluation window has in common with the previous window. These predictions
  // are masked at the start of each window except the first. Must be less than sequence_length.
  int64_t eval_context = 0;
  // Maximum number of consecutive windows, from the start of the split; 0: no limit. If use_random_windows
  // is true, random windows are drawn only from the text that the consecutive windows cover.
  int64_t limit = 0;
  // If true, a window starts at every token, and training draws windows at random. If false, the windows are
  // consecutive.
  bool use_random_windows = false;
  // If true, the windows are segments for models with a segment memory. No token is predicted in two
  // segments. The last segment is padded with zeros, and predictions after the end of the text are masked.
  // Requires eval_context = 0 and use_random_windows = false.
  bool use_segments = false;
};

// Returns the tokenizer that the options describe. If the tokenizer is "sentencepiece" and
// options.sentencepiece_model is empty, trains a model on the text in options.path. The vocabulary of
// "characters" consists of the characters of all splits. Throws DataError for missing, damaged or invalid
// files, and ConfigError if SentencePiece is not available or cannot train the vocabulary.
std::shared_ptr<const Tokenizer> make_tokenizer(const TextOptions& options, uint64_t seed);

// As make_tokenizer(), for several texts whose paths are not those in `options`. SentencePiece is trained on
// `train_paths`. The vocabulary of "characters" also includes the characters of `other_paths`.
std::shared_ptr<const Tokenizer> make_joint_tokenizer(const TextOptions& options,
                                                      const std::vector<std::string>& train_paths,
                                                      const std::vector<std::string>& other_paths,
                                                      uint64_t seed);

// Tokens of a split. Immutable and thread-safe.
class TokenSequence {
 public:
  TokenSequence() = default;
  TokenSequence(const TokenSequence&) = delete;
  TokenSequence& operator=(const TokenSequence&) = delete;
  virtual ~TokenSequence() = default;
  virtual int64_t size() const = 0;
  // Copy `count` tokens, starting at token `first`, to `out`. The uint8_t overload requires a vocabulary of
  // at most 256 tokens.
  virtual void read(int64_t first, int64_t count, uint8_t* out) const = 0;
  virtual void read(int64_t first, int64_t count, int64_t* out) const = 0;
};

// A data set of windows of `sequence_length` + 1 tokens. A model predicts all tokens of a window except the
// first token.
//
// If the tokenizer has start tokens, they are the first tokens of each window, unless
// TextOptions::use_segments is true. The predictions of start tokens are masked, and the first token of the
// split is predicted.
//
// In evaluation, each token of the split except the first token is predicted once. Each window except the
// first window repeats `eval_context` predictions of the previous window and masks these predictions. If
// TextOptions::use_segments is false, the last window ends at the end of the split. The last window can
// therefore repeat and mask more than `eval_context` predictions.
class TextDataset final : public Dataset {
 public:
  // Logs if the tokens have other bytes than the text, because the tokenizer normalises the text or replaces
  // unknown characters. Throws EncodingError with the position of a character that is not in the
  // vocabulary, DataError if the split is shorter than a window, and ConfigError for invalid shares or an
  // invalid `eval_context`.
  TextDataset(const TextOptions& options, const std::string& name, const std::string& split,
              std::shared_ptr<const Tokenizer> tokenizer);

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  int64_t examples_per_token() const override { return uses_random_windows_ ? info_.length : 1; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  // Returns a batch with `tokens` and `mask`. `tokens` has the shape (count, sequence_length + 1); the dtype
  // is uint8 if the vocabulary has at most 256 tokens, and int64 otherwise. `mask` has the shape
  // (count, sequence_length) and is undefined if no prediction is masked.
  Batch batch(std::span<const int64_t> indices) const override;

  const TokenSequence& tokens() const { return *tokens_; }
  int64_t eval_context() const { return eval_context_; }

 private:
  int64_t find_window_start(int64_t index) const;
  // Return the number of tokens of the text in a window, and the number of those that are predicted.
  int64_t count_text_tokens() const { return info_.length + 1 - static_cast<int64_t>(starts_.size()); }
  int64_t count_predictions() const { return starts_.empty() ? info_.length : count_text_tokens(); }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> starts_;  // the start tokens of each window
  std::unique_ptr<const TokenSequence> tokens_;
  DatasetInfo info_;
  bool uses_random_windows_, uses_segments_;
  int64_t eval_context_;  // 0 in training
  int64_t size_ = 0;
};

}  // namespace tapeformer
