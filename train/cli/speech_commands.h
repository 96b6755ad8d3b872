// The implementation of "tapeformer eval" for speech models.
#pragma once

#include "train/cli/common.h"
#include "train/inference/run.h"

namespace tapeformer {

// Runs "tapeformer eval" for a speech model and returns the exit status.
int run_speech_eval(const FoundRun& found, const CommandLine& line);

}  // namespace tapeformer
