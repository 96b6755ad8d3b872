#include "core/threads.h"

namespace tapeformer {

void set_threads(int count) {
  omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
}

}  // namespace tapeformer
