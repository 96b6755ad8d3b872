#include "train/signals.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iterator>
#include <string>

#include "core/base/environment.h"
#include "core/system/process.h"

namespace tapeformer {
namespace {

struct StopSignal {
  int number;
  const char* message;  // the message of end_process()
  // Whether the program leaves the signal ignored if it was ignored at the start. nohup ignores SIGHUP.
  bool may_stay_ignored;
};
constexpr StopSignal kStopSignals[] = {{SIGINT, "error: interrupted by SIGINT\n", false},
                                       {SIGTERM, "error: interrupted by SIGTERM\n", false},
                                       {SIGHUP, "error: interrupted by SIGHUP\n", true},
                                       {SIGUSR1, "error: interrupted by SIGUSR1\n", true},
                                       {SIGUSR2, "error: interrupted by SIGUSR2\n", true}};

volatile std::sig_atomic_t stop_signal = 0, sigint_received = 0, message_omitted = 0;
volatile std::sig_atomic_t received[std::size(kStopSignals)];  // 1 for signals that a scope has recorded
struct sigaction previous_actions[std::size(kStopSignals)];

// Ends the process. The function is a signal handler, so it calls only async-signal-safe functions.
[[noreturn]] void end_process(int number) {
  for (const StopSignal& signal : kStopSignals)
    if (signal.number == number && !message_omitted) {
      // A write error is ignored, because the exit status also reports the signal.
      [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, signal.message, std::strlen(signal.message));
    }
  end_child_processes();
  _exit(kInterruptedExitStatus);
}

// Passes SIGINT to the handler that was installed before the scope. It runs after this handler has returned.
void pass_on_interrupt() {
  static_assert(kStopSignals[0].number == SIGINT);
  if (previous_actions[0].sa_handler == SIG_DFL) end_process(SIGINT);
  sigaction(SIGINT, &previous_actions[0], nullptr);
  raise(SIGINT);
}

void record(int number) {
  if (number == SIGINT && sigint_received) return pass_on_interrupt();
  stop_signal = number;
  if (number == SIGINT) sigint_received = 1;
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    if (kStopSignals[i].number == number) received[i] = 1;
}

// Installs a handler of all stop signals and stores the previous actions in previous_actions.
void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kStopSignals); ++i) {
    const StopSignal& signal = kStopSignals[i];
    sigaction(signal.number, nullptr, &previous_actions[i]);
    if (signal.may_stay_ignored && previous_actions[i].sa_handler == SIG_IGN) continue;
    sigaction(signal.number, &action, nullptr);
  }
}

}  // namespace

void install_exit_handlers() {
  install(end_process);
  const char* const parent = get_environment_variable(kParentVariable);
  if (parent && std::to_string(getppid()) == parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
}

void suppress_signal_message() {
  message_omitted = 1;
}

bool has_received_signal(int number) {
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    if (kStopSignals[i].number == number) return received[i] != 0;
  return false;
}

StopSignalScope::StopSignalScope() {
  stop_signal = 0;
  sigint_received = 0;
  install(record);
}

StopSignalScope::~StopSignalScope() {
  for (size_t i = 0; i < std::size(kStopSignals); ++i)
    sigaction(kStopSignals[i].number, &previous_actions[i], nullptr);
}

int StopSignalScope::last_signal() const {
  return stop_signal;
}

}  // namespace tapeformer
