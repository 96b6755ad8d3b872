#include "core/base/control_group.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "core/base/environment.h"
#include "core/threads/default_threads.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// A folder with the files of control groups.
struct FakeSystem {
  // `groups` is the text of /proc/self/cgroup.
  explicit FakeSystem(const std::string& groups) { add("proc/self/cgroup", groups); }
  void add(const std::string& name, const std::string& text) { write_file(dir / name, text); }
  double quota() const {
    const auto found = read_processor_quota(dir.path());
    return found ? found->processors : 0;
  }
  TempDir dir;
};

}  // namespace

TEST_CASE("the processor quota of version 2 is the smallest quota of the group and of the groups above it") {
  FakeSystem system("0::/user.slice/job/task\n");
  CHECK(system.quota() == 0);
  system.add("sys/fs/cgroup/user.slice/cpu.max", "400000 100000\n");
  system.add("sys/fs/cgroup/user.slice/job/task/cpu.max", "max 100000\n");
  CHECK(system.quota() == 4);
  system.add("sys/fs/cgroup/user.slice/job/cpu.max", "75000 50000\n");
  CHECK(system.quota() == 1.5);
  CHECK(read_processor_quota(system.dir.path())->file == system.dir / "sys/fs/cgroup/user.slice/job/cpu.max");
  system.add("sys/fs/cgroup/user.slice/other/cpu.max", "50000 100000\n");
  CHECK(system.quota() == 1.5);
}

TEST_CASE("the processor quota of version 1 is read from the hierarchy of the controller cpu") {
  FakeSystem system("5:memory:/a\n4:cpuset:/b\n3:cpu,cpuacct:/c/d\n1:name=systemd:/\n");
  const std::string group = "sys/fs/cgroup/cpu,cpuacct/c/d/";
  system.add(group + "cpu.cfs_quota_us", "-1\n");
  system.add(group + "cpu.cfs_period_us", "100000\n");
  CHECK(system.quota() == 0);
  system.add(group + "cpu.cfs_quota_us", "250000\n");
  CHECK(system.quota() == 2.5);
  system.add("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "100000\n");
  system.add("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n");
  CHECK(system.quota() == 2.5);
  system.add("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n");
  system.add("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  CHECK(system.quota() == 1);
}

TEST_CASE("in a container, the quota is read from the mount point if the path of the group does not exist") {
  for (const std::string path : {"/", "/docker/0123", "/../0123", "/kubepods.slice/pod.slice/0123.scope"}) {
    CAPTURE(path);
    FakeSystem second("0::" + path + "\n");
    second.add("sys/fs/cgroup/cpu.max", "100000 100000\n");
    CHECK(second.quota() == 1);
    FakeSystem first("7:cpu:" + path + "\n0::/\n");
    first.add("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
    first.add("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(first.quota() == 0.5);
  }
}

TEST_CASE("files of control groups with other contents are ignored") {
  const TempDir empty;
  CHECK_FALSE(read_processor_quota(empty.path()));
  CHECK_FALSE(read_memory_limit(empty.path()));
  FakeSystem system("\n::\n0\n0:\n0:cpu\n0::\n0::relative\n9:cpu:/a:b\n0::/\n");
  for (const char* const text :
       {"", "\n", "0 0", "max", "-1 100000", "100000", "1 -1", "99999999999999999999 1"}) {
    system.add("sys/fs/cgroup/cpu.max", text);
    CHECK(system.quota() == 0);
  }
  system.add("sys/fs/cgroup/cpu/a:b/cpu.cfs_quota_us", "100000");
  CHECK(system.quota() == 0);
  system.add("sys/fs/cgroup/cpu/a:b/cpu.cfs_period_us", "100000");
  CHECK(system.quota() == 1);
}

TEST_CASE("the memory limit is the smallest limit of the group and of the groups above it") {
  FakeSystem second("0::/slurm/job_1\n");
  second.add("sys/fs/cgroup/memory.max", "max\n");
  CHECK_FALSE(read_memory_limit(second.dir.path()));
  second.add("sys/fs/cgroup/slurm/memory.max", "1048576\n");
  CHECK(read_memory_limit(second.dir.path()) == 1048576);
  FakeSystem first("4:memory:/slurm/job_1\n");
  first.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  first.add("sys/fs/cgroup/memory/slurm/job_1/memory.limit_in_bytes", "2097152\n");
  CHECK(read_memory_limit(first.dir.path()) == 2097152);
}

TEST_CASE("the default number of threads is OMP_NUM_THREADS, the processors or the quota") {
  const auto choose = [](const char* variable, int openmp, int processors, double quota) {
    return choose_default_thread_count(
        variable, openmp, processors,
        quota > 0 ? std::optional(ProcessorQuota{quota, "/sys/fs/cgroup/cpu.max"}) : std::nullopt);
  };
  CHECK(choose(nullptr, 8, 8, 0).count == 8);
  CHECK(choose(nullptr, 8, 8, 1).count == 1);
  CHECK(contains(choose(nullptr, 8, 8, 1).reason, "quota of 1 of 8 processors, in /sys/fs/cgroup/cpu.max"));
  CHECK(choose(nullptr, 8, 8, 0.25).count == 1);
  CHECK(choose(nullptr, 8, 8, 1.25).count == 2);
  CHECK(choose(nullptr, 8, 8, 12).count == 8);
  CHECK(choose("3", 3, 8, 1).count == 3);
  CHECK(choose("3", 3, 8, 1).is_from_environment);
  CHECK(contains(choose("3,2", 3, 8, 1).reason, "OMP_NUM_THREADS"));
  // OpenMP uses all processors if the variable is invalid.
  for (const char* const invalid : {"-1", "0", "many", "99999999999999999999"})
    CHECK(choose(invalid, 8, 8, 2).count == 2);
  CHECK(choose("1000000", 1000000, 8, 0).count == kMaxThreadCount);
}
