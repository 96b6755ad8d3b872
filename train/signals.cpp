#include "train/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

#include "data/files/command.h"

namespace tapeformer {
namespace {

volatile std::sig_atomic_t stop_signal = 0, sigint_received = 0, sigterm_received = 0, message_omitted = 0;
struct sigaction old_interrupt, old_terminate;

// Ends the process. The function is a signal handler, so it calls only async-signal-safe functions.
[[noreturn]] void end_process(int signal) {
  const char* const text =
      signal == SIGINT ? "error: interrupted by SIGINT\n" : "error: interrupted by SIGTERM\n";
  if (!message_omitted && ::write(STDERR_FILENO, text, std::strlen(text)) < 0) {
    // A write error is ignored, because the exit status also reports the signal.
  }
  kill_running_commands();
  _exit(kInterruptedExitStatus);
}

void record(int signal) {
  if (signal == SIGINT && sigint_received) end_process(signal);
  stop_signal = signal;
  if (signal == SIGINT) sigint_received = 1;
  if (signal == SIGTERM) sigterm_received = 1;
}

struct sigaction action_of(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  return action;
}

}  // namespace

void install_exit_handlers() {
  const struct sigaction action = action_of(end_process);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void suppress_signal_message() {
  message_omitted = 1;
}

bool has_received_sigterm() {
  return sigterm_received != 0;
}

StopSignalScope::StopSignalScope() {
  stop_signal = 0;
  sigint_received = 0;
  const struct sigaction action = action_of(record);
  sigaction(SIGINT, &action, &old_interrupt);
  sigaction(SIGTERM, &action, &old_terminate);
}

StopSignalScope::~StopSignalScope() {
  sigaction(SIGINT, &old_interrupt, nullptr);
  sigaction(SIGTERM, &old_terminate, nullptr);
}

int StopSignalScope::last_signal() const {
  return stop_signal;
}

}  // namespace tapeformer
