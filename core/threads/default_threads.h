// The number of threads that a process uses by default.
#pragma once

#include <optional>
#include <string>

#include "core/base/control_group.h"

namespace tapeformer {

// Maximum number of threads of a process.
inline constexpr int kMaxThreadCount = 4096;

struct DefaultThreadCount {
  int count = 1;
  std::string reason;                // a text for users, such as "the environment variable OMP_NUM_THREADS"
  bool is_from_environment = false;  // whether OMP_NUM_THREADS sets the number
};

// Returns the default number of threads of this process: the value of OMP_NUM_THREADS or, if the variable is
// not set, the number of processors that the process may use. A processor quota of the control group reduces
// the number of processors. The first call reads the environment and the control group, and sets the number
// of OpenMP threads of the calling thread. Later calls return the same result.
const DefaultThreadCount& get_default_thread_count();

// Returns the number of threads that can use up a processor quota, which is the quota rounded up. More
// threads would use up the quota sooner, and the system would then stop all threads for the rest of the
// period.
int count_quota_threads(double quota_processors);

// Returns the result of get_default_thread_count() for a process that may use `processors` processors.
// `variable` is the value of OMP_NUM_THREADS, or null, and `openmp_count` is the number of threads that
// OpenMP uses. OpenMP ignores invalid values of the variable.
DefaultThreadCount choose_default_thread_count(const char* variable, int openmp_count, int processors,
                                               const std::optional<ProcessorQuota>& quota);

}  // namespace tapeformer
