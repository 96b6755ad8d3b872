// Recognition of the phones of a recording by a trained speech model.
#pragma once

#include <string>

#include "data/files/text_lines.h"
#include "train/tasks/speech/task.h"

namespace tapeformer {

struct Transcript {
  Words phones;
  int64_t frame_count = 0;
};

// Returns the phones of a recording, or of a .mfc file for a model of AN4. `beam_size` is the number of
// prefixes in a beam search; 0: the most probable class of each frame. Throws DataError if the recording is
// missing, invalid, or longer than the model accepts.
Transcript transcribe(const SpeechTask& task, const std::string& path, int64_t beam_size = 0);

}  // namespace tapeformer
