// Results of commands that a signal or an error ends.
#pragma once

#include <cstdint>
#include <functional>

#include "train/cli/common.h"

namespace tapeformer {

// Runs `work`, which prints its results as it goes or, with --json, collects them for one object. Then runs
// `finish`, which prints the object. With --json, a stop signal (train/signals.h) ends `work` at its next
// call of throw_if_interrupted() (core/base/interruption.h), and ends the process after `finish`. If `work`
// throws an exception, runs `finish` if there are results, and throws the exception.
void run_and_keep_results(const CommonOptions& options, const std::function<void()>& work,
                          const std::function<int64_t()>& count_results, const std::function<void()>& finish);

}  // namespace tapeformer
