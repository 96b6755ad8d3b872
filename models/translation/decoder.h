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
  // Each sentence of the source has `rows_per_source` consecutive rows. The model must outlive the decoder.
  // Translations have at most `capacity` tokens, which must not exceed max_length of the model.
  TranslationDecoder(const TranslationModel& model, EncodedSource source, int64_t rows_per_source,
                     int64_t capacity);

  // Reads one token of every row, (rows,) int64 on the CPU. Returns the logits of the next tokens, (rows,
  // vocabulary), which are valid until the next step.
  const Tensor& step(const Tensor& tokens);
  // Replaces translations by others of the same sentence. No row may be both read and written.
  void copy_rows(std::span<const RowCopy> rows);
  // Keeps only the rows of these sentences, in this order.
  void select_sources(std::span<const int64_t> sources);

  int64_t row_count() const { return source_.states.size(0) * rows_per_source_; }

 private:
  void allocate();
  Tensor recompute(const Tensor& tokens);

  const TranslationModel& model_;
  EncodedSource source_;
  int64_t rows_per_source_, position_ = 0;
  std::unique_ptr<RecurrentEncoder> decoder_;  // null if the attention has no recurrent form
  DecodingLinear predictor_;
  Tensor embeddings_;     // scaled embeddings (vocabulary, width)
  Tensor no_features_;    // (1, 0)
  Tensor device_tokens_;  // (rows,)
  Tensor logits_;
  std::vector<std::vector<int64_t>> prefixes_;  // used without a recurrent form
};

}  // namespace tapeformer
