// Parts of commands that run only for classifiers and models of sets.
#pragma once

#include "train/cli/common.h"
#include "train/inference/run.h"

namespace tapeformer {

// Runs "tapeformer eval" for a classifier or a model of sets, and returns the exit status.
int evaluate_examples(const FoundRun& found, const CommandLine& line);

}  // namespace tapeformer
