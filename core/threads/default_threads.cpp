#include "core/threads/default_threads.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/environment.h"
#include "core/base/errors.h"

namespace tapeformer {

int count_quota_threads(double quota_processors) {
  return static_cast<int>(std::clamp(std::ceil(quota_processors), 1.0, double{kMaxThreadCount}));
}

DefaultThreadCount choose_default_thread_count(const char* variable, int openmp_count, int processors,
                                               const std::optional<ProcessorQuota>& quota) {
  // OpenMP accepts a list of numbers and uses the first one.
  if (variable && std::strtol(variable, nullptr, 10) == openmp_count)
    return {std::clamp(openmp_count, 1, kMaxThreadCount), "the environment variable OMP_NUM_THREADS", true};
  if (quota && count_quota_threads(quota->processors) < processors)
    return {count_quota_threads(quota->processors),
            concat_text("the control group has a quota of ", quota->processors, " of ", processors,
                        " processors, in ", quota->file.string())};
  return {processors, "the processors that the process may use"};
}

const DefaultThreadCount& get_default_thread_count() {
  static const auto* const result = [] {
    auto* const made = new DefaultThreadCount(
        choose_default_thread_count(get_environment_variable("OMP_NUM_THREADS"), omp_get_max_threads(),
                                    omp_get_num_procs(), read_processor_quota()));
    omp_set_num_threads(made->count);
    return made;
  }();
  return *result;
}

}  // namespace tapeformer
