// Results of commands that a signal ends.
#pragma once

#include <functional>

#include "train/cli/common.h"

namespace tapeformer {

// Runs `work`, which prints its results as it goes or, with --json, collects them for one object. With
// --json, a stop signal (train/signals.h) ends `work` at its next call of throw_if_interrupted()
// (core/base/interruption.h), so that the object can be printed. Returns this signal, or 0.
int run_and_keep_results(const CommonOptions& options, const std::function<void()>& work);

// Ends the process as the signal does, unless it is 0.
void end_after_signal(int signal);

}  // namespace tapeformer
