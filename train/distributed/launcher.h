// Detection of the launcher of this process: mpirun, a PMI launcher, or srun of Slurm.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

struct Launch {
  std::string launcher;    // "mpirun", "a PMI launcher" or "srun"; empty if the process was started alone
  int rank = 0, size = 1;  // number of this process, from 0, and number of processes
};

// A function that returns the value of an environment variable, or null if it is not set.
using Environment = std::function<const char*(const char* name)>;

// Returns the launcher, the rank and the number of processes. Reads these environment variables:
// - Open MPI: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE
// - MPICH and Intel MPI: PMI_RANK and PMI_SIZE
// - srun: SLURM_PROCID and SLURM_STEP_NUM_TASKS
// mpirun may start its daemons with srun, so the variables of Open MPI take precedence over the variables of
// srun. Throws ConfigError if the variables are incomplete or contradict each other, for example if PMIX_RANK
// differs from the rank.
Launch read_launch(const Environment& environment);

// Returns read_launch() for the environment of this process.
Launch read_launch();

// Returns the environment of this process, as "NAME=value", without the variables that read_launch() reads. A
// child process with this environment runs alone, as if no launcher had started it.
std::vector<std::string> environment_without_launch();

// Returns the end of a message for a process that must run alone: "" if `launch` has no launcher, and
// otherwise the variables to unset.
std::string unset_advice(const Launch& launch);

// Returns a message if Slurm has allocated several tasks, but the process runs alone because srun has not
// started it. Otherwise returns "".
std::string unused_tasks_text(const Launch& launch, const Environment& environment);

// Throws ConfigError if srun started the process without PMIx. Open MPI needs PMIx to connect the tasks of
// srun, and ends the process in MPI_Init without it.
void require_pmix(const Launch& launch, const Environment& environment);

// Throws ConfigError if the rank or the number of processes that MPI reports differs from `launch`.
void check_world(const Launch& launch, int rank, int size);

}  // namespace tapeformer
