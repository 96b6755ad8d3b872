#include "train/cli/keep_results.h"

#include <csignal>

#include "core/base/interruption.h"
#include "train/signals.h"

namespace tapeformer {
namespace {

const StopSignalScope* current_signals = nullptr;

void throw_after_signal() {
  if (current_signals->last_signal() != 0) throw StoppedError();
}

// Returns the signal that ended `work`, or 0.
int run_until_signal(const std::function<void()>& work) {
  const StopSignalScope signals;
  current_signals = &signals;
  const InterruptionScope interruption(throw_after_signal);
  try {
    work();
    return 0;
  } catch (const StoppedError&) {
    return signals.last_signal();
  }
}

}  // namespace

void run_and_keep_results(const CommonOptions& options, const std::function<void()>& work,
                          const std::function<int64_t()>& count_results,
                          const std::function<void()>& finish) {
  int signal = 0;
  try {
    if (options.json)
      signal = run_until_signal(work);
    else
      work();
  } catch (...) {
    if (count_results() > 0) finish();
    throw;
  }
  finish();
  if (signal != 0) raise(signal);
}

}  // namespace tapeformer
