#include "core/threads/serial_libraries.h"

#include <omp.h>

namespace tapeformer {

SerialOpenMpScope::SerialOpenMpScope()
    : openmp_threads_(omp_get_max_threads()), openmp_levels_(omp_get_max_active_levels()) {
  omp_set_num_threads(1);
  omp_set_max_active_levels(0);
}
SerialOpenMpScope::~SerialOpenMpScope() {
  omp_set_max_active_levels(openmp_levels_);
  omp_set_num_threads(openmp_threads_);
}

}  // namespace tapeformer
