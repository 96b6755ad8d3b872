// The decoding form of a TranslationModel, which reads one token of each translation at a time. Keys and
// values of the source are computed once. If the self-attention has a recurrent form, a step reads only the
// newest tokens; otherwise, it computes all prefixes again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/encoder/encoder_step.h"
#include "models/translation/model.h"

namespace tapeformer {

class TranslationDecoder {
 public:
  // The model must outlive the decoder.
  explicit TranslationDecoder(const TranslationModel& model) : model_(model) {}

  // Starts the translation of sentences. Each sentence of the source has `rows_per_source` consecutive rows.
  // Translations have at most `max_length` tokens, which must not exceed max_length of the model. Weights are
  // packed at the first call, and again for more rows.
  void start(const EncodedSource& source, int64_t rows_per_source, int64_t max_length);
  // Reads one token of every row, (rows,) int64 on the CPU. Returns the logits of the next tokens, (rows,
  // vocabulary), which are valid until the next step.
  const Tensor& step(const Tensor& tokens);
  // Replaces translations by others of the same sentence. No row may be both read and written.
  void copy_rows(std::span<const RowCopy> rows);
  // Keeps only the rows of these sentences, in this order.
  void select_sources(std::span<const int64_t> sources);

  const TranslationModel& model() const { return model_; }
  int64_t row_count() const { return source_count_ * rows_per_source_; }

 private:
  void pack();
  void allocate();
  Tensor recompute(const Tensor& tokens);

  const TranslationModel& model_;
  int64_t source_count_ = 0, rows_per_source_ = 0, max_length_ = 0, position_ = 0;
  int64_t capacity_ = 0;  // of the caches, which grow up to max_length_ tokens
  // Packed weights for at most packed_rows_ rows, and decoder_, which uses them. Null if the attention has no
  // recurrent form.
  int64_t packed_rows_ = 0;
  std::unique_ptr<RecurrentEncoder> packed_decoder_;
  DecodingLinear predictor_;
  Tensor embeddings_;   // scaled embeddings (vocabulary, width)
  Tensor no_features_;  // (1, 0)

  std::unique_ptr<RecurrentEncoder> decoder_;
  Tensor device_tokens_;  // (rows,)
  Tensor logits_;         // (rows, vocabulary)
  // Used without a recurrent form: the tokens and the source of each row.
  std::vector<std::vector<int64_t>> prefixes_;
  EncodedSource source_;
};

}  // namespace tapeformer
