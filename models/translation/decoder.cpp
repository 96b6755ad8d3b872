#include "models/translation/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr int64_t kFirstCapacity = 16;  // most translations of sentences are about as long

EncodedSource select(const EncodedSource& source, std::span<const int64_t> rows) {
  return {select_rows(source.states, rows),
          source.lengths.defined() ? select_rows(source.lengths, rows) : Tensor{}};
}

}  // namespace

void TranslationDecoder::pack() {
  const Linear& predictor = model_.predictor;
  packed_rows_ = row_count();
  packed_decoder_ = std::make_unique<RecurrentEncoder>(model_.decoder, packed_rows_, 1);
  predictor_ = DecodingLinear(predictor.weight, predictor.bias, packed_rows_);
  const Tensor weight = detach(model_.target_embeddings().weight);
  embeddings_ = model_.options().shared_embeddings ? mul(weight, model_.embedding_scale()) : weight;
  no_features_ = Tensor::zeros({1, 0}, weight.dtype(), weight.device());
}

void TranslationDecoder::start(const EncodedSource& source, int64_t rows_per_source, int64_t max_length) {
  const NoGradScope no_grad;
  const TranslationModelOptions& options = model_.options();
  check(max_length >= 1 && max_length <= options.max_length, "TranslationDecoder", "the length ", max_length,
        " must be from 1 to ", options.max_length);
  source_count_ = source.states.size(0);
  rows_per_source_ = rows_per_source;
  max_length_ = max_length;
  capacity_ = std::min(max_length, kFirstCapacity);
  position_ = 0;
  if (supports(options.encoder.attention, &AttentionCapabilities::recurrent)) {
    if (row_count() > packed_rows_) pack();
    decoder_ = std::make_unique<RecurrentEncoder>(*packed_decoder_, row_count(), capacity_);
    decoder_->read_source(source);
  } else {
    prefixes_.assign(static_cast<size_t>(row_count()), {});
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < row_count(); ++r) rows.push_back(r / rows_per_source);
    source_ = select(source, rows);
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
  if (position_ == capacity_) {
    capacity_ = std::min(2 * capacity_, max_length_);
    std::vector<int64_t> all(static_cast<size_t>(source_count_));
    std::iota(all.begin(), all.end(), 0);
    decoder_ = decoder_->select_sources(all, capacity_);
  }
  device_tokens_.copy_from(tokens);
  const Tensor& positions = model_.target_positions;
  embed_into(embeddings_, device_tokens_, no_features_, 0, decoder_->input(),
             positions.defined() ? slice(positions, 0, position_, position_ + 1) : Tensor{});
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
  ++position_;
  return model_.predict_next(inputs.to(model_.predictor.weight.device()), source_);
}

void TranslationDecoder::copy_rows(std::span<const RowCopy> rows) {
  if (decoder_) return decoder_->copy_rows(rows);
  for (const RowCopy& row : rows)
    prefixes_[static_cast<size_t>(row.to)] = prefixes_[static_cast<size_t>(row.from)];
}

void TranslationDecoder::select_sources(std::span<const int64_t> sources) {
  source_count_ = static_cast<int64_t>(sources.size());
  if (decoder_) {
    decoder_ = decoder_->select_sources(sources, capacity_);
  } else {
    std::vector<std::vector<int64_t>> kept;
    std::vector<int64_t> rows;
    for (const int64_t source : sources)
      for (int64_t i = 0; i < rows_per_source_; ++i) {
        rows.push_back(source * rows_per_source_ + i);
        kept.push_back(std::move(prefixes_[static_cast<size_t>(rows.back())]));
      }
    prefixes_ = std::move(kept);
    source_ = select(source_, rows);
  }
  allocate();
}

}  // namespace tapeformer
