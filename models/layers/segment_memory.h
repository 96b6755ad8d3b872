// Segment memory (Dai et al. 2019, "Transformer-XL", section 3.2): inputs of attention layers that pass,
// without gradients, from a segment of a text to the next one. Example i of each batch is the segment that
// follows example i of the previous batch.
#pragma once

#include <map>
#include <string>

#include "models/layers/module.h"

namespace tapeformer {

// The memories of the layers of a model for a batch of texts. The tensors keep their addresses, so that
// captured graphs read and write them.
class SegmentMemory {
 public:
  // Makes memories for `batch` texts. `like` has the dtype and the device of the inputs.
  SegmentMemory(int64_t batch, const Tensor& like) : batch_(batch), like_(like) {}
  // Adds the memory of a layer: its last `tokens` inputs, which have `width` features.
  void add_layer(const std::string& name, int64_t tokens, int64_t width);

  // Starts a segment. The inputs of the previous segment become readable. `preceding` is the number of tokens
  // of each text before the segment; older inputs belong to other texts and are not read.
  void start_segment(int64_t preceding);
  // Returns the newest earlier inputs of a layer for the first `batch` texts, (batch, tokens, width).
  // Undefined if the layer has no memory or no earlier input.
  Tensor read(const std::string& layer, int64_t batch) const;
  // Stores the inputs x (batch, length, width) of a layer for the next segment. The values are copied, so no
  // gradient passes. A replay of the layer in the same segment stores nothing.
  void write(const std::string& layer, const Tensor& x);

  // Returns the inputs for the next segment, under the names of the layers. Checkpoints store these tensors
  // and load them in place.
  NamedTensors state() const;

 private:
  struct Layer {
    Tensor previous, next;  // (batch, tokens, width)
    bool is_written = false;
  };

  int64_t batch_;
  Tensor like_;
  int64_t preceding_ = 0;
  std::map<std::string, Layer> layers_;
};

}  // namespace tapeformer
