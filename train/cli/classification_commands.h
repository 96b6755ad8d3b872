// Parts of commands that run only for classifiers.
#pragma once

#include "train/cli/common.h"
#include "train/inference/run.h"

namespace tapeformer {

// Runs "tapeformer eval" for a classifier and returns the exit status.
int evaluate_classification(const FoundRun& found, const CommandLine& line);

}  // namespace tapeformer
