// The segment memory stores inputs of attention layers, or recurrent states. With a segment memory, the
// tokens of a segment of a text also attend to the previous segments (Dai et al. 2019, "Transformer-XL",
// section 3.2). No gradients flow into the stored inputs. Example i of each batch must be the segment that
// follows example i of the previous batch in the text. A layer can have a second, compressed memory, in which
// each row represents several older inputs (Rae et al. 2020, "Compressive Transformers").
#pragma once

#include <map>
#include <string>

#include "models/layers/module.h"

namespace tapeformer {

// Sizes of the segment memory of a layer.
struct SegmentMemorySize {
  int64_t tokens = 0;            // maximum number of inputs that are kept uncompressed
  int64_t compressed_rows = 0;   // maximum number of rows of compressed older inputs; requires tokens > 0
  int64_t compression_rate = 1;  // number of inputs that are compressed to one row
  // The memory keeps the recurrent state of the attention instead of inputs. `tokens` is 1.
  bool stores_state = false;

  // Returns the maximum number of memory rows that a segment reads.
  int64_t max_rows() const { return tokens + compressed_rows; }
  // Returns the number of tokens that the memory represents if it is full.
  int64_t token_span() const { return tokens + compressed_rows * compression_rate; }
};

// The segment memories of all layers of a model, for a batch of texts. The tensors are updated in place, so
// that captured graphs can read and write them.
class SegmentMemory {
 public:
  // Makes memories for `batch` texts. `like` has the dtype and the device of the inputs.
  SegmentMemory(int64_t batch, const Tensor& like) : batch_size_(batch), prototype_(like) {}
  // Adds the memory of a layer whose inputs have `width` features.
  void add_layer(const std::string& name, const SegmentMemorySize& size, int64_t width);

  // Starts a segment. Until the next call, read() returns inputs of the previous segments.
  // `preceding_token_count` is the number of tokens of the same text before the new segment. read() does not
  // return the inputs of other texts.
  void start_segment(int64_t preceding_token_count);
  // Returns the earlier inputs of a layer for the first `batch` texts, (batch, rows, width). The compressed
  // rows come first. Returns an undefined tensor if the layer has no memory or no earlier input.
  Tensor read(const std::string& layer, int64_t batch) const;
  // Stores a copy of the inputs x (batch, length, width) of a layer for the next segment. `length` must be a
  // multiple of compression_rate, except in the last segment of a text.
  //
  // If the layer has a compressed memory, and at least compression_rate inputs do not fit into the
  // uncompressed memory, returns a copy of the oldest inputs, (batch, count, width). `count` is a multiple of
  // compression_rate. The caller must compress these inputs and call write_compressed(). In all other cases,
  // returns an undefined tensor.
  //
  // If the function is called again for the same layer in the same segment, for example in a replay of the
  // forward pass, it does nothing and returns an undefined tensor.
  Tensor write(const std::string& layer, const Tensor& x);
  // Appends rows (batch, count, width) to the compressed memory of a layer for the next segment.
  void write_compressed(const std::string& layer, const Tensor& rows);

  // Returns the tensors that the next segment reads. The name of a tensor is the name of the layer, with the
  // suffix ".compressed" for compressed rows. Checkpoints store these tensors and load them in place.
  NamedTensors state() const;

 private:
  struct RowBuffers {
    Tensor previous, next;  // (batch, capacity, width); undefined if the capacity is 0
  };
  struct Layer {
    SegmentMemorySize size;
    RowBuffers tokens, compressed;
    bool is_written = false;
  };
  RowBuffers make_row_buffers(int64_t capacity, int64_t width) const;
  // Returns the last `valid` rows of rows.previous for the first `batch` texts, (batch, valid, width).
  static Tensor get_newest_rows(const RowBuffers& rows, int64_t batch, int64_t valid);
  // Appends x (batch, length, width) to rows.previous and writes the result to rows.next. Keeps only the last
  // rows.next.size(1) rows of the result.
  static void append(const RowBuffers& rows, const Tensor& x);
  int64_t count_valid_tokens(const Layer& layer) const;

  int64_t batch_size_;
  Tensor prototype_;
  int64_t preceding_token_count_ = 0;
  std::map<std::string, Layer> layers_;
};

}  // namespace tapeformer
