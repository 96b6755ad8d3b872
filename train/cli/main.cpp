#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>

#include "train/cli/run.h"

namespace {

// Functions that run before the initialization of shared libraries, so they call only system calls.
#define RUN_FIRST __attribute__((no_sanitize("address", "thread", "undefined")))

// Ends the program with a message if the address space has no room for the buffers that OpenBLAS allocates
// when it is loaded. Without room, OpenBLAS would repeat the attempt forever.
RUN_FIRST void require_address_space() {
  constexpr size_t kNeeded = size_t{288} << 20;
  constexpr int kFailureExitStatus = 1;
  constexpr char kText[] =
      "error: out of memory: the limit on the address space (ulimit -v) is too low; at least 1 GB is "
      "needed\n";
  const long block = syscall(SYS_mmap, nullptr, kNeeded, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block != -1) {
    syscall(SYS_munmap, block, kNeeded);
    return;
  }
  [[maybe_unused]] const long written = syscall(SYS_write, STDERR_FILENO, kText, sizeof kText - 1);
  syscall(SYS_exit_group, kFailureExitStatus);
}

bool is_hangup_ignored = false;

// Records whether SIGHUP is ignored, as by nohup: UCX, which Open MPI 5 loads, replaces its action.
RUN_FIRST void record_hangup_action() {
  struct {
    void (*handler)(int);
    char rest[56];
  } action{};
  if (syscall(SYS_rt_sigaction, SIGHUP, nullptr, &action, sizeof(uint64_t)) == 0)
    is_hangup_ignored = action.handler == SIG_IGN;
}

RUN_FIRST void run_first(int, char**, char**) {
  require_address_space();
  record_hangup_action();
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const preinit)(int, char**, char**) = run_first;

}  // namespace

int main(int argc, char** argv) {
  if (is_hangup_ignored) signal(SIGHUP, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on the size of files fails, with a message
  return tapeformer::cli::run(argc, argv);
}
