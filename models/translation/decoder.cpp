#include "models/translation/decoder.h"

#include <algorithm>
#include <utility>

#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {

TranslationDecoder::TranslationDecoder(const TranslationModel& model, EncodedSource source,
                                       int64_t rows_per_source, int64_t capacity)
    : model_(model), source_(std::move(source)), rows_per_source_(rows_per_source) {
  const NoGradScope no_grad;
  const TranslationModelOptions& options = model.options();
  check(capacity >= 1 && capacity <= options.max_length, "TranslationDecoder", "capacity ", capacity,
        " must be from 1 to ", options.max_length);
  if (supports(options.encoder.attention, &AttentionCapabilities::recurrent)) {
    decoder_ = std::make_unique<RecurrentEncoder>(model.decoder, row_count(), capacity);
    decoder_->read_source(source_);
    predictor_ = DecodingLinear(model.predictor.weight, model.predictor.bias, row_count());
    const Tensor weight = detach(model.target_embeddings().weight);
    embeddings_ = options.shared_embeddings ? mul(weight, model.embedding_scale()) : weight;
    no_features_ = Tensor::zeros({1, 0}, weight.dtype(), weight.device());
  } else {
    prefixes_.resize(static_cast<size_t>(row_count()));
  }
  allocate();
}

void TranslationDecoder::allocate() {
  const Tensor& like = model_.predictor.weight;
  if (!decoder_) return;
  logits_ = Tensor::empty({row_count(), like.size(0)}, like.dtype(), like.device());
  device_tokens_ = Tensor::empty({row_count()}, DType::int64, like.device());
}

const Tensor& TranslationDecoder::step(const Tensor& tokens) {
  const NoGradScope no_grad;
  check(tokens.shape() == Shape{row_count()}, "TranslationDecoder", "tokens ", tokens.shape(), " must be ",
        Shape{row_count()});
  if (!decoder_) return logits_ = recompute(tokens);
  device_tokens_.copy_from(tokens);
  const Tensor& positions = model_.target_positions;
  const Tensor row = positions.defined() ? detach(positions) : Tensor{};
  embed_into(embeddings_, device_tokens_, no_features_, 0, decoder_->input(),
             row.defined() ? slice(row, 0, position_, position_ + 1) : row);
  predictor_.forward_into(decoder_->step(), Activation::none, logits_);
  ++position_;
  return logits_;
}

Tensor TranslationDecoder::recompute(const Tensor& tokens) {
  const auto rows = static_cast<int64_t>(prefixes_.size());
  const Tensor inputs = Tensor::empty({rows, position_ + 1}, DType::int64);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int64_t>& prefix = prefixes_[static_cast<size_t>(r)];
    prefix.push_back(tokens.data<int64_t>()[r]);
    std::copy(prefix.begin(), prefix.end(), inputs.data<int64_t>() + r * (position_ + 1));
  }
  std::vector<int64_t> sources;
  for (int64_t r = 0; r < rows; ++r) sources.push_back(r / rows_per_source_);
  const EncodedSource repeated{select_rows(source_.states, sources),
                               source_.lengths.defined() ? select_rows(source_.lengths, sources) : Tensor{}};
  const Tensor all = model_.forward(inputs.to(model_.predictor.weight.device()), repeated, {});
  ++position_;
  return reshape(slice(all, 1, position_ - 1, position_), {rows, all.size(2)});
}

void TranslationDecoder::copy_rows(std::span<const RowCopy> rows) {
  if (decoder_) return decoder_->copy_rows(rows);
  for (const RowCopy& row : rows)
    prefixes_[static_cast<size_t>(row.to)] = prefixes_[static_cast<size_t>(row.from)];
}

void TranslationDecoder::select_sources(std::span<const int64_t> sources) {
  if (decoder_) {
    decoder_ = decoder_->select_sources(sources);
  } else {
    std::vector<std::vector<int64_t>> kept;
    for (const int64_t source : sources)
      for (int64_t i = 0; i < rows_per_source_; ++i)
        kept.push_back(std::move(prefixes_[static_cast<size_t>(source * rows_per_source_ + i)]));
    prefixes_ = std::move(kept);
  }
  source_ = {select_rows(source_.states, sources),
             source_.lengths.defined() ? select_rows(source_.lengths, sources) : Tensor{}};
  allocate();
}

}  // namespace tapeformer
