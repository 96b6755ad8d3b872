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

}  // namespace

int run_and_keep_results(const CommonOptions& options, const std::function<void()>& work) {
  if (!options.json) {
    work();
    return 0;
  }
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

void end_after_signal(int signal) {
  if (signal != 0) raise(signal);
}

}  // namespace tapeformer
