// Detection of the launcher of this process: mpirun, a PMI launcher, or srun of Slurm.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

struct LaunchInfo {
  std::string launcher_name;  // "mpirun", "a PMI launcher" or "srun"; empty if the process was started alone
  int rank = 0, size = 1;     // rank of this process, and number of processes
};

// A function that returns the value of an environment variable, or null if it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

// Returns the launcher, the rank and the number of processes. Reads these environment variables:
// - Open MPI: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE
// - MPICH and Intel MPI: PMI_RANK and PMI_SIZE
// - srun: SLURM_PROCID and SLURM_STEP_NUM_TASKS
// mpirun may start its daemons with srun, so the variables of Open MPI take precedence over the variables of
// srun. Throws ConfigError if the variables are incomplete or contradict each other, for example if PMIX_RANK
// differs from the rank.
LaunchInfo read_launch_info(const EnvironmentLookup& environment);

// Returns read_launch_info() for the environment of this process.
LaunchInfo read_launch_info();

// Returns the environment of this process, as "NAME=value", without the variables that read_launch_info() and
// describe_unused_tasks() read. A child process with this environment runs alone, as if no launcher had
// started it.
std::vector<std::string> make_standalone_environment();

// Returns a text that names the environment variables of the launcher, such as ", or unset PMI_RANK and
// PMI_SIZE". Callers append this text to error messages. Returns "" if no launcher started the process.
std::string describe_variables_to_unset(const LaunchInfo& launch);

// If Slurm has allocated several tasks, but no launcher has started this process, returns a warning that the
// process runs alone. Otherwise returns "".
std::string describe_unused_tasks(const LaunchInfo& launch, const EnvironmentLookup& environment);

// Throws ConfigError if srun started the process without PMIx. Without PMIx, Open MPI cannot connect the
// processes that srun started, and MPI_Init ends the process.
void require_pmix(const LaunchInfo& launch, const EnvironmentLookup& environment);

// Throws ConfigError if the rank or the number of processes that MPI reports differs from `launch`.
void check_mpi_world(const LaunchInfo& launch, int rank, int process_count);

}  // namespace tapeformer
