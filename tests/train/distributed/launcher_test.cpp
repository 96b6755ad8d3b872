#include "train/distributed/launcher.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/support/temp_dir.h"
#include "train/config/config.h"
#include "train/distributed/processes.h"
#include "train/loop/process_settings.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Variables = std::map<std::string, std::string>;

LaunchInfo launch_with(const Variables& variables) {
  return read_launch_info([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_with(const Variables& variables) {
  return message_of<ConfigError>([&] { launch_with(variables); });
}

}  // namespace

TEST_CASE("the launcher, the rank and the number of processes come from the environment") {
  CHECK(launch_with({}).size == 1);
  const LaunchInfo mpirun =
      launch_with({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "3"}});
  CHECK(mpirun.launcher_name == "mpirun");
  CHECK(mpirun.rank == 3);
  CHECK(mpirun.size == 4);
  CHECK(launch_with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).rank == 1);
  const LaunchInfo srun =
      launch_with({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "5"}});
  CHECK(srun.launcher_name == "srun");
  CHECK(srun.size == 8);
}

TEST_CASE("a batch script of Slurm is one process, and mpirun in a step of srun sets the rank") {
  CHECK(launch_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size == 1);
  const LaunchInfo launch = launch_with({{"OMPI_COMM_WORLD_RANK", "7"},
                                         {"OMPI_COMM_WORLD_SIZE", "8"},
                                         {"SLURM_PROCID", "1"},
                                         {"SLURM_STEP_NUM_TASKS", "2"}});
  CHECK(launch.rank == 7);
  CHECK(launch.size == 8);
}

TEST_CASE("contradictory variables of launchers are refused") {
  CHECK(contains(error_with({{"OMPI_COMM_WORLD_RANK", "1"}}),
                 "OMPI_COMM_WORLD_RANK is set without OMPI_COMM_WORLD_SIZE"));
  CHECK(contains(error_with({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
                 "OMPI_COMM_WORLD_RANK=5 is not below OMPI_COMM_WORLD_SIZE=2"));
  CHECK(contains(error_with({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
                 "OMPI_COMM_WORLD_RANK=x: expected a number"));
  CHECK(
      contains(error_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}),
               "PMIX_RANK=1, but mpirun started process 0"));
  CHECK(contains(error_with({{"PMIX_RANK", "1"}}),
                 "environment variable PMIX_RANK=1 is set, but no variable gives the number of processes"));
  CHECK(contains(error_with({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "1"}}),
                 "PMIX_RANK=1, but srun started process 0"));
}

TEST_CASE("a launcher and MPI that report different numbers of processes are refused") {
  CHECK_NOTHROW(check_mpi_world({"mpirun", 1, 4}, 1, 4));
  CHECK(contains(message_of<ConfigError>([] {
                   check_mpi_world({"mpirun", 1, 4}, 0, 1);
                 }),
                 "the environment variables of mpirun describe process 1 of 4, but MPI reports process 0 of "
                 "1; use the launcher of the MPI library that the program was built with, or unset "
                 "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"));
  CHECK(contains(message_of<ConfigError>([] {
                   check_mpi_world({"a PMI launcher", 1, 4}, 0, 1);
                 }),
                 "variables of a PMI launcher describe process 1 of 4"));
  CHECK(contains(message_of<ConfigError>([] { check_mpi_world({"srun", 1, 4}, 0, 1); }), "srun --mpi=pmix"));
}

TEST_CASE("tasks of srun without PMIx are refused, because Open MPI cannot connect them") {
  const auto environment = [](bool with_pmix) {
    return [with_pmix](const char* name) {
      return with_pmix && name == std::string("PMIX_RANK") ? "1" : nullptr;
    };
  };
  CHECK(
      contains(message_of<ConfigError>([&] {
                 require_pmix({"srun", 1, 4}, environment(false));
               }),
               "srun started process 1 of 4 without PMIx, which Open MPI needs; start with srun --mpi=pmix"));
  CHECK_NOTHROW(require_pmix({"srun", 1, 4}, environment(true)));
  CHECK_NOTHROW(require_pmix({"mpirun", 1, 4}, environment(false)));
}

TEST_CASE("a process that runs alone in an allocation of several tasks of Slurm gets a hint") {
  const auto text_with = [](const Variables& variables) {
    const EnvironmentLookup environment = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    };
    return describe_unused_tasks(read_launch_info(environment), environment);
  };
  CHECK(contains(text_with({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}}),
                 "SLURM_NTASKS=2, but srun has not started this process"));
  CHECK(text_with({}).empty());
  CHECK(text_with({{"SLURM_NTASKS", "1"}}).empty());
  CHECK(text_with({{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}).empty());
}

TEST_CASE("hosts with more threads than processors are found") {
  const std::vector<ProcessLocation> locations = {{"a", 1, {0, 1}}, {"b", 1, {0, 1}}, {"a", 2, {1, 2}}};
  CHECK(list_oversubscription_warnings(locations, {2, 2, 1}).empty());
  const auto texts = list_oversubscription_warnings(locations, {2, 2, 2});
  REQUIRE(texts.size() == 1);
  CHECK(contains(texts.front(), "host a: 2 processes with 4 threads in total may use only 3 processors"));
}

TEST_CASE("processes that may use the same processors divide them") {
  const auto location = [](const std::string& host, std::vector<int> processors) {
    return ProcessLocation{host, 1, std::move(processors)};
  };
  const std::vector<ProcessLocation> unbound(2, location("a", {0, 1, 2, 3}));
  CHECK(compute_default_thread_count(unbound, 0) == 2);
  CHECK(compute_default_thread_count({location("a", {0, 1, 2, 3}), location("b", {0, 1, 2, 3})}, 1) == 4);
  // Each process is bound to one processor.
  CHECK(compute_default_thread_count({location("a", {0}), location("a", {1})}, 1) == 1);
  // Three processes share three processors.
  CHECK(compute_default_thread_count(
            {location("a", {0, 1, 2}), location("a", {0, 1, 2}), location("a", {0, 1, 2})}, 2) == 1);
  // The processes of a host share the processor quota.
  CHECK(compute_default_thread_count(unbound, 1, 2.5) == 1);
  CHECK(compute_default_thread_count({location("a", {0, 1, 2, 3}), location("b", {0, 1, 2, 3})}, 0, 3) == 3);
  // There are more processes than processors.
  CHECK(compute_default_thread_count(std::vector<ProcessLocation>(4, location("a", {0, 1})), 3) == 1);
}

TEST_CASE("list_shared_settings() has the keys of a config, except keys that may differ between machines") {
  Config config;
  config.optimizer.lr = 0.25;
  std::string text;
  for (const auto& [name, value] : list_shared_settings(config)) text += name + "=" + value + ";";
  CHECK(contains(text, "optimizer.lr=0.25;"));
  CHECK(contains(text, "data.batch_size=10;"));
  CHECK(contains(text, "version of the program="));
  CHECK_FALSE(contains(text, "run.threads"));
  CHECK_FALSE(contains(text, "run.device"));
}
