// Preparation of a user's text for a language model, and evaluation on texts that are longer than a window.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/text_encoding.h"
#include "data/text/text_dataset.h"
#include "models/autoregressive_model.h"
#include "train/evaluate.h"
#include "train/report.h"

namespace tapeformer {

// Returns the text without a UTF-8 byte order mark. Throws DataError with a command that converts the text if
// it is UTF-16 or UTF-32. The tokenizer "bytes" takes any text, so logs a warning instead. `name` is the file
// of the text.
std::string prepare_text(std::string text, const std::string& name, const Tokenizer& tokenizer);
// Throws or warns as prepare_text() does for a text in `encoding`, which is not UTF-8.
void check_encoding(const TextEncoding& encoding, const std::string& name, const Tokenizer& tokenizer);

// Returns the negative log-likelihoods, in nats, of all tokens except the first. The model reads windows of
// max_length tokens. Each window repeats the second half of the previous window as context. A model with a
// segment memory reads consecutive segments of max_length tokens instead.
std::vector<double> compute_token_losses(const AutoregressiveModel& model, std::span<const int64_t> tokens);

// Returns the tokens of a text. The errors of characters that the tokenizer lacks are DataErrors, which begin
// with `location` and the position of the character.
std::vector<int64_t> encode_text(const Tokenizer& tokenizer, std::string_view text,
                                 const std::string& location);

// A scorer of lines independently of each other: the model reads the start tokens of the tokenizer and a line
// end as context, and predicts a line and its end. If there is no context, because the vocabulary lacks line
// ends, the first token of a line is not predicted.
class LineScorer {
 public:
  static constexpr size_t kMaxLineBytes = size_t{1} << 24;

  // The model and the tokenizer must outlive the scorer.
  LineScorer(const AutoregressiveModel& model, const Tokenizer& tokenizer);

  // Throws DataError, which begins with `location`, for a line that is too long or cannot be encoded.
  TextScore score(std::string_view line, const std::string& location) const;

 private:
  const AutoregressiveModel& model_;
  const Tokenizer& tokenizer_;
  std::vector<int64_t> context_;
  std::string line_end_;  // empty if the vocabulary lacks line ends
};

// Evaluates a split with the recurrent form of the model, which reads the tokens one after another, without
// windows. Divides the split into `stream_count` equal parts that run as a batch, each from an empty state.
// The first token of a part is not scored. `limit` is the maximum number of scored tokens per part; 0: all.
// Throws ConfigError if the model has no recurrent form with a state of constant size, or if the model has
// too few positions.
Evaluation evaluate_recurrent(const AutoregressiveModel& model, const TextDataset& dataset,
                              int64_t stream_count, int64_t limit, const StopCheck& stop = {});

// Adds the number of unknown tokens and their share of the tokens to the report, unless the number is 0.
void add_unknown_tokens(const TextScore& score, Report& report);

}  // namespace tapeformer
