// Translation of lines of text by a trained model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.h"
#include "models/translation/beam_search.h"

namespace tapeformer {

struct TranslatorOptions {
  BeamSearchOptions search = {};
  int64_t batch_sentences = 0;  // maximum number of sentences that are decoded together; 0: no limit
  int64_t batch_tokens = 512;   // maximum number of source tokens that are decoded together, with padding
};

// A translation of a line. Line ends in a translation are replaced by spaces, so that it is one line.
struct TranslatedText {
  std::string text;
  int64_t token_count = 0;    // with the end token, if the translation is complete
  int64_t unknown_count = 0;  // unknown tokens, whose text is U+FFFD
  double log_probability = 0, score = 0;
  bool is_complete = true;  // see TranslationHypothesis
  bool is_cut = false;      // whether the end of the line was not translated
};

class Translator {
 public:
  // The model must outlive the translator.
  Translator(const TranslationModel& model, std::shared_ptr<const Tokenizer> tokenizer,
             const TranslatorOptions& options)
      : model_(model), decoder_(model), tokenizer_(std::move(tokenizer)), options_(options) {}

  // Returns the hypotheses of each line in the order of the lines, the best first. Decodes lines of similar
  // lengths together. A line without tokens has one empty hypothesis. Lines that are longer than the model
  // takes (TranslationModel::max_sentence_length()) are cut. Characters that the tokenizer lacks are read as
  // its unknown token or, if it has none, left out. All of them are counted. Calls `on_progress` with the
  // number of finished lines after each batch.
  std::vector<std::vector<TranslatedText>> translate(const std::vector<std::string>& lines,
                                                     const std::function<void(int64_t)>& on_progress = {});
  // Counts of the lines in all calls of translate() that have returned.
  struct LineCounts {
    int64_t lines = 0, cut_lines = 0;
    int64_t first_cut_line = 0;  // its number, from 1; 0: there is none
    int64_t unknown_tokens = 0, left_out_characters = 0;
  };
  const LineCounts& counts() const { return counts_; }

 private:
  std::vector<int32_t> encode(std::string_view line, LineCounts& counts) const;
  TranslatedText decode(const TranslationHypothesis& hypothesis) const;

  const TranslationModel& model_;
  TranslationDecoder decoder_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TranslatorOptions options_;
  LineCounts counts_;
};

struct ScoredTarget {
  double log_probability = 0;
  int64_t token_count = 0;
  int64_t source_unknown_count = 0, target_unknown_count = 0;  // unknown tokens
  bool is_cut = false;                                         // whether the source or the target was cut
};

// Returns the log-probabilities, in nats, that the model assigns to the targets and their ends, and the
// numbers of tokens with the end tokens. Sentences that are longer than the model takes are cut. Throws
// DataError with the line of the sentence if a sentence cannot be encoded: the first source is line
// `first_line` of the file `names.first`, and the first target is that line of `names.second`. `sources` and
// `targets` have the same size.
std::vector<ScoredTarget> score_targets(const TranslationModel& model, const Tokenizer& tokenizer,
                                        const std::vector<std::string>& sources,
                                        const std::vector<std::string>& targets,
                                        const std::pair<std::string, std::string>& names,
                                        int64_t first_line = 1, int64_t batch_tokens = 2048);

// Returns the maximum length of a sentence with the key that sets it, for messages.
std::string describe_sentence_limit(const TranslationModel& model);

// Returns the text of the tokens as one line of UTF-8: line ends and spaces at the ends are removed. Unknown
// tokens and bytes that are not UTF-8 become U+FFFD.
std::string decode_line(const Tokenizer& tokenizer, const std::vector<int64_t>& tokens);

}  // namespace tapeformer
