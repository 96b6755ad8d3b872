#include "train/reproduce/jobs.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include "core/system/files.h"
#include "core/system/process.h"
#include "tests/support/environment.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<std::string> test_arguments(const std::string& test_case) {
  return {"--no-skip", "--test-case=" + test_case};
}

// Runs `count` jobs at the same time and returns how many of them have bound threads.
int count_bound_jobs(const std::filesystem::path& folder, int count) {
  std::vector<Job> jobs;
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(count) + "-" + std::to_string(i);
    jobs.push_back({name, test_arguments("a job fails if its threads are bound"), folder / (name + ".out"),
                    folder / (name + ".log"), "job " + name});
  }
  int bound = 0;
  run_jobs(
      jobs, count, true, [] { return 0; },
      [&](size_t /*job*/, const JobResult& result) { bound += result.exit_status != 0; });
  return bound;
}

}  // namespace

// Run by the next test as a job.
TEST_CASE("a job fails if its threads are bound" * doctest::skip()) {
  CHECK(omp_get_proc_bind() == omp_proc_bind_false);
}

// Run by the next test in a program with OMP_PROC_BIND.
TEST_CASE("a program with bound threads runs one job and two jobs" * doctest::skip()) {
  REQUIRE(omp_get_proc_bind() != omp_proc_bind_false);
  const TempDir dir;
  CHECK(count_bound_jobs(dir.path(), 1) == 1);
  CHECK(count_bound_jobs(dir.path(), 2) == 0);
}

TEST_CASE("threads of a job are bound only if no other job runs, so that jobs share no processor") {
  const TempDir dir;
  for (const std::string variable : {"OMP_PROC_BIND=true", "OMP_PLACES=cores"}) {
    CAPTURE(variable);
    const File out((dir / "out").string(), O_WRONLY | O_CREAT | O_TRUNC);
    std::vector<std::string> arguments =
        test_arguments("a program with bound threads runs one job and two jobs");
    arguments.insert(arguments.begin(), "test");
    ChildProcess bound({.program = "/proc/self/exe",
                        .arguments = arguments,
                        .environment = environment_with_openmp(variable),
                        .output_descriptor = out.descriptor(),
                        .error_descriptor = out.descriptor()});
    std::optional<int> status;
    while (!(status = bound.poll())) usleep(1000);
    INFO(test::read_file(dir / "out"));
    CHECK(*status == 0);
  }
}
