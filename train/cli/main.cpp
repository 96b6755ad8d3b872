#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "train/cli/run.h"

namespace {

// Ends the program with a message if the address space has no room for the buffers that OpenBLAS allocates
// when it is loaded. Without room, OpenBLAS would repeat the attempt forever. The function runs before the
// initialization of shared libraries, so it calls only system calls.
__attribute__((no_sanitize("address", "thread", "undefined"))) void require_address_space(int, char**,
                                                                                          char**) {
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

[[gnu::section(".preinit_array"), gnu::used]] void (*const run_first)(int, char**,
                                                                      char**) = require_address_space;

}  // namespace

int main(int argc, char** argv) {
  return tapeformer::cli::run(argc, argv);
}
