// The StreamDecoder of a trained model, with options that follow from its training.
#pragma once

#include <memory>

#include "core/options.h"
#include "models/stream_decoder.h"
#include "train/run.h"

namespace tapeformer {

inline constexpr double kTrainedWindow = -1;

// --window of the commands that transcribe streams.
OptionSpec window_option();

// `window_seconds`: see window_option(). The run must outlive the decoder. Throws ConfigError if the model
// sees later frames, if its attention kind has no recurrent form, and for unsuitable windows.
std::unique_ptr<StreamDecoder> make_stream_decoder(const LoadedSpeechRun& run, double window_seconds);

}  // namespace tapeformer
