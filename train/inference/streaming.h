// Transcription of streams with a trained model.
#pragma once

#include <memory>

#include "core/options.h"
#include "models/speech/stream_decoder.h"
#include "train/inference/run.h"

namespace tapeformer {

inline constexpr double kTrainedWindow = -1;  // selects the length of the longest training utterance

// Returns the option "window" of programs that transcribe streams, in seconds.
OptionSpec window_option();

// Returns a decoder for the model of a run, which must outlive it. After at most `window_seconds`, the
// decoder continues with a new state; 0: no limit; kTrainedWindow: the length of the longest training
// utterance. Throws ConfigError if the model is not causal, its attention kind has no recurrent form, or the
// window is too short.
std::unique_ptr<StreamDecoder> make_stream_decoder(const LoadedSpeechRun& run, double window_seconds);

}  // namespace tapeformer
