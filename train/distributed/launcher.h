// Detection of the launcher that started this process: mpirun, a PMI launcher, or srun of Slurm.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

struct Launch {
  std::string launcher;    // "mpirun", "a PMI launcher" or "srun"; empty if the process was started alone
  int rank = 0, size = 1;  // number of this process, from 0, and number of processes
};

// Returns the value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Reads the variables of the launchers: OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE of Open MPI, PMI_RANK
// and PMI_SIZE of MPICH and Intel MPI, and SLURM_PROCID and SLURM_STEP_NUM_TASKS of an srun step. mpirun
// starts its daemons by srun, so the variables of Open MPI take precedence over those of Slurm. Throws
// ConfigError if the variables are incomplete or contradict each other, for example if PMIX_RANK differs from
// the rank.
Launch read_launch(const Environment& environment);

// Reads the environment of this process.
Launch read_launch();

// Returns the environment of this process, as "NAME=value", without the variables that read_launch() reads. A
// child process with this environment runs as one process.
std::vector<std::string> environment_without_launch();

// Throws ConfigError if MPI reports another rank or number of processes than the launcher.
void check_world(const Launch& launch, int rank, int size);

}  // namespace tapeformer
