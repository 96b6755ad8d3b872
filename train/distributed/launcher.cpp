#include "train/distributed/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/base/environment.h"
#include "core/base/errors.h"

namespace tapeformer {
namespace {

struct LauncherVariables {
  const char *launcher, *rank, *size;
};
constexpr LauncherVariables kLaunchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"a PMI launcher", "PMI_RANK", "PMI_SIZE"},
                                            {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

constexpr const char* kPmixRank = "PMIX_RANK";
// Environment variable with the number of tasks of a Slurm job. Slurm also sets this variable for processes
// that srun has not started.
constexpr const char* kSlurmTasks = "SLURM_NTASKS";

constexpr const char* kStartWithPmix = "start with srun --mpi=pmix";

constexpr const char* kAdvice =
    "; start all processes with one mpirun or srun, and unset variables of other launchers";

std::optional<int> read_number(const EnvironmentLookup& environment, const char* name) {
  const char* const text = environment(name);
  if (!text || !*text) return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  if (error != std::errc{} || last != end || number < 0)
    throw ConfigError(concat_text("environment variable ", name, "=", text, ": expected a number", kAdvice));
  return number;
}

// Reads the environment variables of one launcher, which contain the rank and the number of processes.
// Returns std::nullopt if neither variable is set. Throws ConfigError if only one variable is set or the
// values are invalid.
std::optional<LaunchInfo> launch_of(const LauncherVariables& variables,
                                    const EnvironmentLookup& environment) {
  const auto rank = read_number(environment, variables.rank), size = read_number(environment, variables.size);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    throw ConfigError(concat_text("environment variable ", rank ? variables.rank : variables.size,
                                  " is set without ", rank ? variables.size : variables.rank, kAdvice));
  if (*rank >= *size)
    throw ConfigError(concat_text("environment variable ", variables.rank, "=", *rank, " is not below ",
                                  variables.size, "=", *size, kAdvice));
  return LaunchInfo{variables.launcher, *rank, *size};
}

void check_same(const LaunchInfo& launch, const char* rank_name, const EnvironmentLookup& environment) {
  const auto rank = read_number(environment, rank_name);
  if (rank && *rank != launch.rank)
    throw ConfigError(concat_text("environment variable ", rank_name, "=", *rank, ", but ",
                                  launch.launcher_name, " started process ", launch.rank, kAdvice));
}

// Returns whether srun has started this process. The batch script of a job also has the variable
// SLURM_PROCID, but only tasks of srun have SLURM_STEP_NUM_TASKS.
bool is_srun_task(const LauncherVariables& variables, const EnvironmentLookup& environment) {
  return environment(variables.size) != nullptr;
}

}  // namespace

LaunchInfo read_launch_info(const EnvironmentLookup& environment) {
  const auto& [mpirun, pmi, srun] = kLaunchers;
  if (const auto launch = launch_of(mpirun, environment)) {
    check_same(*launch, kPmixRank, environment);
    check_same(*launch, pmi.rank, environment);
    return *launch;
  }
  if (const auto launch = launch_of(pmi, environment)) {
    check_same(*launch, kPmixRank, environment);
    return *launch;
  }
  if (!is_srun_task(srun, environment)) {
    if (const auto rank = read_number(environment, kPmixRank))
      throw ConfigError(concat_text("environment variable ", kPmixRank, "=", *rank,
                                    " is set, but no variable gives the number of processes", kAdvice));
    return {};
  }
  const LaunchInfo launch = launch_of(srun, environment).value();
  check_same(launch, kPmixRank, environment);
  return launch;
}

LaunchInfo read_launch_info() {
  return read_launch_info(get_environment_variable);
}

std::vector<std::string> make_standalone_environment() {
  std::vector<std::string> names{kPmixRank, kSlurmTasks};
  for (const LauncherVariables& variables : kLaunchers)
    names.insert(names.end(), {variables.rank, variables.size});
  std::vector<std::string> kept;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (std::find(names.begin(), names.end(), text.substr(0, text.find('='))) == names.end())
      kept.push_back(text);
  }
  return kept;
}

std::string describe_variables_to_unset(const LaunchInfo& launch) {
  for (const LauncherVariables& variables : kLaunchers)
    if (launch.launcher_name == variables.launcher)
      return concat_text(", or unset ", variables.rank, " and ", variables.size);
  return "";
}

std::string describe_unused_tasks(const LaunchInfo& launch, const EnvironmentLookup& environment) {
  const char* const value = environment(kSlurmTasks);
  const int64_t tasks = value ? std::strtoll(value, nullptr, 10) : 1;
  if (tasks < 2 || !launch.launcher_name.empty()) return "";
  return concat_text(kSlurmTasks, "=", tasks, ", but srun has not started this process, which runs alone; ",
                     kStartWithPmix, " for several processes");
}

void require_pmix(const LaunchInfo& launch, const EnvironmentLookup& environment) {
  if (launch.launcher_name == "srun" && !environment(kPmixRank))
    throw ConfigError(concat_text("srun started process ", launch.rank, " of ", launch.size,
                                  " without PMIx, which Open MPI needs; ", kStartWithPmix));
}

void check_mpi_world(const LaunchInfo& launch, int rank, int process_count) {
  if (process_count == launch.size && rank == launch.rank) return;
  throw ConfigError(concat_text(
      "the environment variables of ", launch.launcher_name, " describe process ", launch.rank, " of ",
      launch.size, ", but MPI reports process ", rank, " of ", process_count, "; ",
      launch.launcher_name == "srun" ? kStartWithPmix
                                     : "use the launcher of the MPI library that the program was built with",
      describe_variables_to_unset(launch)));
}

}  // namespace tapeformer
