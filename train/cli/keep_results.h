// Results of commands that a signal ends.
#pragma once

#include <functional>

#include "train/cli/common.h"

namespace tapeformer {

// Runs `work`, which prints its results as it goes or, with --json, collects them for one object. Then runs
// `finish`, which prints the object. With --json, a stop signal (train/signals.h) ends `work` at its next
// call of throw_if_interrupted() (core/base/interruption.h), and ends the process after `finish`.
void run_and_keep_results(const CommonOptions& options, const std::function<void()>& work,
                          const std::function<void()>& finish);

}  // namespace tapeformer
