#include "core/threads/serial_libraries.h"

#include <omp.h>

namespace tapeformer {

namespace {

thread_local int depth = 0;

// Older versions of libgomp have one number of levels for all threads. The scope of another thread may have
// set it to 0, so the outermost scope of a thread restores the number of levels before the first scope.
int get_original_levels() {
  static const int levels = omp_get_max_active_levels();
  return levels;
}

}  // namespace

SerialOpenMpScope::SerialOpenMpScope()
    : openmp_threads_(omp_get_max_threads()), openmp_levels_(depth++ == 0 ? get_original_levels() : 0) {
  omp_set_num_threads(1);
  omp_set_max_active_levels(0);
}
SerialOpenMpScope::~SerialOpenMpScope() {
  --depth;
  omp_set_max_active_levels(openmp_levels_);
  omp_set_num_threads(openmp_threads_);
}

}  // namespace tapeformer
