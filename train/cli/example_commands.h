// The implementation of "tapeformer eval" for classifiers and Set Transformers.
#pragma once

#include "train/cli/common.h"
#include "train/inference/run.h"

namespace tapeformer {

// Runs "tapeformer eval" for a classifier or a Set Transformer, and returns the exit status.
int run_example_eval(const FoundRun& found, const CommandLine& line);

}  // namespace tapeformer
