#include "models/speech/model.h"

#include <algorithm>

#include "models/layers/positions.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const SpeechModelOptions& check_options(const SpeechModelOptions& options) {
  if (options.features <= 0)
    throw OptionError("features", concat_text("expected at least 1, got ", options.features));
  if (options.classes < 2)
    throw OptionError("classes",
                      concat_text("expected at least 2, the blank and a label, got ", options.classes));
  if (options.encoder_kind == SpeechEncoderKind::lstm) return options;
  if (options.max_steps() <= 0)
    throw OptionError("max_frames", concat_text("expected at least the subsampling factor, ",
                                                options.subsampling, ", got ", options.max_frames));
  const std::string text =
      options.causal
          ? describe_unsupported(options.encoder.attention, "causal form", &AttentionCapabilities::causal)
          : describe_unsupported(options.encoder.attention, "length masks, which utterances need",
                                 &AttentionCapabilities::length_masks);
  if (!text.empty()) throw OptionError("attention", text);
  return options;
}

int64_t compute_head_width(const SpeechModelOptions& options) {
  if (options.encoder_kind == SpeechEncoderKind::transformer) return options.encoder.output_width();
  return (options.lstm_bidirectional ? 2 : 1) * options.lstm_hidden;
}

SubsamplingOptions make_subsampling_options(const SpeechModelOptions& options) {
  return {.kind = options.subsampling_kind,
          .factor = options.subsampling,
          .features = options.features,
          .channels = options.encoder_kind == SpeechEncoderKind::lstm ? options.lstm_hidden
                                                                      : options.encoder.width()};
}

}  // namespace

SpeechModel::SpeechModel(const SpeechModelOptions& options)
    : subsampling(make_subsampling_options(options)),
      head(compute_head_width(check_options(options)), options.classes),
      options_(options) {
  const int64_t in = subsampling.options().output_width();
  add_child("subsampling", subsampling);
  if (options.encoder_kind == SpeechEncoderKind::lstm) {
    lstm = std::make_unique<LstmStack>(LstmOptions{.input_width = in,
                                                   .hidden = options.lstm_hidden,
                                                   .layers = options.encoder.layers,
                                                   .bidirectional = options.lstm_bidirectional,
                                                   .dropout = options.encoder.dropout});
    add_child("lstm", *lstm);
  } else {
    const int64_t width = options.encoder.width();
    input_projection = std::make_unique<Linear>(in, width);
    EncoderOptions make_encoder_options = options.encoder;
    make_encoder_options.causal = options.causal;
    make_encoder_options.max_length = options.max_steps();
    encoder = std::make_unique<Encoder>(make_encoder_options);
    add_child("input_projection", *input_projection);
    add_child("", *encoder);
    if (options.use_sinusoidal_positions) {
      position_features = make_sinusoidal_position_features(options.max_steps(), width).to(DType::float32);
      add_buffer("positions", position_features);
    }
  }
  add_child("head", head);
}

SpeechOutput SpeechModel::forward(const Tensor& features, const Tensor& frame_lengths,
                                  const ForwardContext& context) const {
  check(features.rank() == 3 && features.size(2) == options_.features, "speech model", "features ",
        features.shape(), " must be (batch, frames, ", options_.features, ")");
  const Tensor lengths = subsampling.count_steps(frame_lengths, features.size(0), features.size(1));
  const DType dtype = head.weight.dtype();
  const Tensor converted = features.dtype() == dtype ? features : features.to(dtype);
  const Tensor x = subsampling.forward(converted.to(head.weight.device()), frame_lengths);
  if (lstm) return {head.forward(lstm->forward(x, lengths, context)), lengths};
  check(x.size(1) <= options_.max_steps(), "speech model", "utterances of ", features.size(1),
        " frames are longer than the maximum of ", options_.max_frames);
  const Tensor projected = input_projection->forward(x);
  const Tensor y = options_.use_sinusoidal_positions
                       ? add(projected, slice(position_features, 0, 0, x.size(1)))
                       : projected;
  // Causal attention needs no lengths, because the padding follows the valid steps and no step attends to
  // later steps.
  const AttentionMask mask{.causal = options_.causal, .key_lengths = options_.causal ? Tensor{} : lengths};
  return {head.forward(encoder->forward(y, mask, context)), lengths};
}

CtcLoss SpeechModel::compute_loss(const Batch& batch, const ForwardContext& context) const {
  const SpeechOutput output = forward(batch.elements, batch.lengths, context);
  return ctc_loss(output.logits, output.lengths, batch.labels, batch.label_lengths,
                  {.blank = kSpeechBlank, .reduction = options_.reduction});
}

int64_t SpeechModel::compute_loss_divisor(const Batch& batch) const {
  const std::vector<double> lengths = batch.lengths.to_vector();
  const double longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const Tensor steps =
      subsampling.count_steps(batch.lengths, batch.lengths.size(0), static_cast<int64_t>(longest));
  return compute_ctc_loss_divisor(steps, batch.labels, batch.label_lengths, options_.reduction);
}

}  // namespace tapeformer
