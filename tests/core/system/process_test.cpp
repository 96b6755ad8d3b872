#include "core/system/process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/system/files.h"
#include "core/threads/affinity.h"
#include "tests/support/environment.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

int wait_for(ChildProcess& child) {
  std::optional<int> status;
  while (!(status = child.poll())) usleep(1000);
  return *status;
}

}  // namespace

TEST_CASE("a child process has its own environment and output and no input, and reports its exit status") {
  const TempDir dir;
  const File out((dir / "out").string(), O_WRONLY | O_CREAT), err((dir / "err").string(), O_WRONLY | O_CREAT);
  ChildProcess child({.program = "sh",
                      .arguments = {"sh", "-c", "cat; echo $NAME; echo problem >&2; exit 3"},
                      .environment = {"NAME=value"},
                      .output_descriptor = out.descriptor(),
                      .error_descriptor = err.descriptor()});
  const int status = wait_for(child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(child.poll() == status);
  CHECK(test::read_file(dir / "out") == "value\n");
  CHECK(test::read_file(dir / "err") == "problem\n");
}

// Run by the next test, in a program with OMP_PROC_BIND.
TEST_CASE("a child process writes its processors" * doctest::skip()) {
  ChildProcess child({.program = "nproc", .arguments = {"nproc"}, .output_descriptor = STDERR_FILENO});
  CHECK(wait_for(child) == 0);
}

TEST_CASE("a child process of a program with bound threads may use all processors") {
  const TempDir dir;
  const File out((dir / "out").string(), O_WRONLY | O_CREAT), err((dir / "err").string(), O_WRONLY | O_CREAT);
  ChildProcess bound({.program = "/proc/self/exe",
                      .arguments = {"test", "--no-skip", "--test-case=a child process writes its processors"},
                      .environment = environment_with_openmp("OMP_PROC_BIND=true"),
                      .output_descriptor = out.descriptor(),
                      .error_descriptor = err.descriptor()});
  CHECK(wait_for(bound) == 0);
  const UnboundScope all_processors;
  cpu_set_t set;
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK(test::read_file(dir / "err") == std::to_string(CPU_COUNT(&set)) + "\n");
}

TEST_CASE("end_child_processes() and the destructor send the end signal of each child process") {
  const TempDir dir;
  const auto sleeper = [](int signal) {
    return ProcessOptions{.program = "sleep", .arguments = {"sleep", "1000"}, .end_signal = signal};
  };
  ChildProcess terminated(sleeper(SIGTERM)), killed(sleeper(SIGKILL));
  CHECK(!terminated.poll());
  end_child_processes();
  CHECK(WTERMSIG(wait_for(terminated)) == SIGTERM);
  CHECK(WTERMSIG(wait_for(killed)) == SIGKILL);
  const ChildProcess waited_for(sleeper(SIGTERM));  // the test ends
}

TEST_CASE("a program that cannot be run is an error with its name") {
  CHECK(message_of<FileError>([] {
          ChildProcess({.program = "no-such-program", .arguments = {"no-such-program"}});
        }) == "cannot run no-such-program: No such file or directory");
}
