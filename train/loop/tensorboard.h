// Writes TensorBoard event files, which contain the metrics, the sample images and the config of a run.
//
// An event file is a TFRecord file that contains protobuf messages of type tensorflow.Event. EventWriter does
// not use libprotobuf, because libsentencepiece exports the symbols of its own copy of protobuf. A program
// that links both libprotobuf and libsentencepiece crashes when it starts.
#pragma once

#include <string>
#include <string_view>

#include "core/system/folder.h"
#include "train/metrics.h"

namespace tapeformer {

// A writer of one event file. The functions throw FileError if the file cannot be written.
class EventWriter {
 public:
  // Creates a file "events.out.tfevents.…" in a folder.
  explicit EventWriter(const Folder& folder);

  // Writes an event that marks the start of a session at `step`. The event causes TensorBoard to ignore all
  // events of `step` and later steps in earlier event files. A resumed run repeats the later steps.
  void write_session_start(int64_t step);
  // Writes each number of a record, except "step", as a scalar. The name of the scalar consists of the split
  // and the field, for example "train/loss_nats". Skips values that are not finite.
  void write_scalars(const MetricRecord& record);
  // Writes an image of `height` × `width` pixels with 1 or 3 channels. `png` is the image in PNG format.
  void write_image(const std::string& name, int64_t step, std::string_view png, int64_t height, int64_t width,
                   int64_t channels);
  // Writes a text summary, which TensorBoard renders as Markdown.
  void write_text(const std::string& name, int64_t step, const std::string& markdown);

 private:
  // Writes an event with the current time and the step number `step`. `field` is the encoded protobuf field
  // with the content of the event, such as a summary.
  void write_event(int64_t step, const std::string& field);

  File file_;
};

}  // namespace tapeformer
