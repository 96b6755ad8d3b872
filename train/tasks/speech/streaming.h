// Transcription of streams with a trained model.
#pragma once

#include <memory>

#include "core/options/options.h"
#include "models/speech/stream_decoder.h"
#include "train/tasks/speech/task.h"

namespace tapeformer {

// The value of --window that selects the length of the longest training utterance.
inline constexpr double kLongestTrainingUtterance = -1;

// Returns the command-line option --window of programs that transcribe streams. Its value is the
// `window_seconds` of make_stream_decoder().
OptionSpec make_window_option();

// Returns a decoder for the model of a task. The task must outlive the decoder. After at most
// `window_seconds` of speech, the decoder continues with a new recurrent state. If `window_seconds` is 0, the
// length of the speech that a recurrent state processes is not limited. If `window_seconds` is
// kLongestTrainingUtterance, the window has the length of the longest training utterance.
//
// Throws ConfigError if the model is an LSTM, is not causal, or has an attention kind without a recurrent
// form. Also throws ConfigError if the window is too short.
std::unique_ptr<StreamDecoder> make_stream_decoder(const SpeechTask& task, double window_seconds);

}  // namespace tapeformer
