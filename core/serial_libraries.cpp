#include "core/serial_libraries.h"

#include <omp.h>

namespace tapeformer {

SerialLibraryScope::SerialLibraryScope()
    : openmp_threads_(omp_get_max_threads()), openmp_levels_(omp_get_max_active_levels()) {
  omp_set_num_threads(1);
  omp_set_max_active_levels(0);
}
SerialLibraryScope::~SerialLibraryScope() {
  omp_set_max_active_levels(openmp_levels_);
  omp_set_num_threads(openmp_threads_);
}

}  // namespace tapeformer
