#include "train/signals.h"

#include <unistd.h>

#include <csignal>

namespace tapeformer {
namespace {

constexpr int kInterrupted = 130;

volatile std::sig_atomic_t stop_signal = 0;
struct sigaction old_interrupt, old_terminate;

void handle(int signal) {
  if (signal == SIGINT && stop_signal == SIGINT) _exit(kInterrupted);
  stop_signal = signal;
}

}  // namespace

StopSignals::StopSignals() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
}

int StopSignals::requested() const {
  return stop_signal;
}

}  // namespace tapeformer
