#include "train/distributed/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/errors.h"

namespace tapeformer {
namespace {

struct LauncherVariables {
  const char *launcher, *rank, *size;
};
constexpr LauncherVariables kLaunchers[] = {{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                            {"a PMI launcher", "PMI_RANK", "PMI_SIZE"},
                                            {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

constexpr const char* kPmixRank = "PMIX_RANK";
constexpr const char* kSlurmTasks = "SLURM_NTASKS";  // number of tasks in the allocation, even without srun

constexpr const char* kStartWithPmix = "start with srun --mpi=pmix";

constexpr const char* kAdvice =
    "; start all processes with one mpirun or srun, and unset variables of other launchers";

std::optional<int> number_in(const Environment& environment, const char* name) {
  const char* const text = environment(name);
  if (!text || !*text) return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto [last, error] = std::from_chars(text, end, number);
  if (error != std::errc{} || last != end || number < 0)
    throw ConfigError(concat_text("environment variable ", name, "=", text, ": expected a number", kAdvice));
  return number;
}

// Returns the rank and the number of processes that a launcher has set in `environment`, or std::nullopt if
// the launcher has set neither.
std::optional<Launch> launch_of(const LauncherVariables& variables, const Environment& environment) {
  const auto rank = number_in(environment, variables.rank), size = number_in(environment, variables.size);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    throw ConfigError(concat_text("environment variable ", rank ? variables.rank : variables.size,
                                  " is set without ", rank ? variables.size : variables.rank, kAdvice));
  if (*rank >= *size)
    throw ConfigError(concat_text("environment variable ", variables.rank, "=", *rank, " is not below ",
                                  variables.size, "=", *size, kAdvice));
  return Launch{variables.launcher, *rank, *size};
}

void check_same(const Launch& launch, const char* rank_name, const Environment& environment) {
  const auto rank = number_in(environment, rank_name);
  if (rank && *rank != launch.rank)
    throw ConfigError(concat_text("environment variable ", rank_name, "=", *rank, ", but ", launch.launcher,
                                  " started process ", launch.rank, kAdvice));
}

// Returns whether the process is a task of an srun step. In a batch script, SLURM_PROCID is set as well, but
// SLURM_STEP_NUM_TASKS is not.
bool is_srun_task(const LauncherVariables& variables, const Environment& environment) {
  return environment(variables.size) != nullptr;
}

}  // namespace

Launch read_launch(const Environment& environment) {
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
    if (const auto rank = number_in(environment, kPmixRank))
      throw ConfigError(concat_text("environment variable ", kPmixRank, "=", *rank,
                                    " is set, but no variable gives the number of processes", kAdvice));
    return {};
  }
  const Launch launch = launch_of(srun, environment).value();
  check_same(launch, kPmixRank, environment);
  return launch;
}

Launch read_launch() {
  return read_launch([](const char* name) { return std::getenv(name); });
}

std::vector<std::string> environment_without_launch() {
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

std::string unset_advice(const Launch& launch) {
  for (const LauncherVariables& variables : kLaunchers)
    if (launch.launcher == variables.launcher)
      return concat_text(", or unset ", variables.rank, " and ", variables.size);
  return "";
}

std::string unused_tasks_text(const Launch& launch, const Environment& environment) {
  const char* const value = environment(kSlurmTasks);
  const int64_t tasks = value ? std::strtoll(value, nullptr, 10) : 1;
  if (tasks < 2 || !launch.launcher.empty()) return "";
  return concat_text(kSlurmTasks, "=", tasks, ", but srun has not started this process, which runs alone; ",
                     kStartWithPmix, " for several processes");
}

void require_pmix(const Launch& launch, const Environment& environment) {
  if (launch.launcher == "srun" && !environment(kPmixRank))
    throw ConfigError(concat_text("srun started process ", launch.rank, " of ", launch.size,
                                  " without PMIx, which Open MPI needs; ", kStartWithPmix));
}

void check_world(const Launch& launch, int rank, int size) {
  if (size == launch.size && rank == launch.rank) return;
  throw ConfigError(concat_text(
      "the environment variables of ", launch.launcher, " describe process ", launch.rank, " of ",
      launch.size, ", but MPI reports process ", rank, " of ", size, "; ",
      launch.launcher == "srun" ? kStartWithPmix
                                : "use the launcher of the MPI library that the program was built with",
      unset_advice(launch)));
}

}  // namespace tapeformer
