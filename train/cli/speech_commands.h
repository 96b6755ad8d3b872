// What the commands do with a model of speech.
#pragma once

#include "train/cli/common.h"
#include "train/run.h"

namespace tapeformer {

// eval of a run whose model recognises speech.
int evaluate_speech(const FoundRun& found, const CommandLine& line);

}  // namespace tapeformer
