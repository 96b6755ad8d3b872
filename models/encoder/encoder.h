// The Transformer encoder, or a decoder with cross-attention: a stack of layers
// (models/encoder/encoder_layer.h) and a final layer norm. Layers are post-norm as in "Transformers are
// RNNs", pre-norm, or reversible as in "Reformer" (models/encoder/reversible.h).
#pragma once

#include <memory>
#include <vector>

#include "models/encoder/encoder_layer.h"
#include "models/layers/segment_memory.h"

namespace tapeformer {

class Encoder final : public Module {
 public:
  // Throws OptionError if the options contradict each other or if an attention kind rejects an option.
  explicit Encoder(const EncoderOptions& options);
  // Encodes x (batch, length, width). Returns the result of the final norm, (batch, length, output_width).
  // Layers with cross-attention read `source`.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                 const EncodedSource& source = {}) const;

  // Returns an empty segment memory for `batch` texts, or null if no layer has a segment memory.
  std::unique_ptr<SegmentMemory> make_segment_memory(int64_t batch) const;

  const EncoderOptions& options() const { return options_; }

  std::vector<std::unique_ptr<EncoderLayer>> layers;
  Norm norm;

 private:
  EncoderOptions options_;
};

}  // namespace tapeformer
